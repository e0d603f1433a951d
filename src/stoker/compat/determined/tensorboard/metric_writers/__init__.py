"""`determined.tensorboard.metric_writers`."""
