"""`determined.pytorch.experimental`: batch inference."""

from stoker.pytorch import TorchBatchProcessor, TorchBatchProcessorContext, torch_batch_process

__all__ = ["TorchBatchProcessor", "TorchBatchProcessorContext", "torch_batch_process"]
