"""`determined.tensorboard`: where its writers were."""
