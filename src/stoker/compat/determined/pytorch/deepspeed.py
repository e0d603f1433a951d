"""`determined.pytorch.deepspeed`: not here."""

raise ImportError(
    "determined.pytorch.deepspeed is not supported: DeepSpeedTrial needs DeepSpeed and its GPUs. Use a PyTorchTrial"
    ' with init(strategy="fsdp"), or DeepSpeed itself through the Core API (determined.core).'
)
