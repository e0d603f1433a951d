"""What AI Platform Training brought: its flags, its job files, its staging layout, its containers."""
