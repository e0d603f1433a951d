# batch_inference.py

import torch
from train import OnesDataset, OneVarPytorchTrial  # was: from train.py import …

import stoker as det
import stoker.pytorch


def my_upload_fn(predictions):  # was: left to the reader
    torch.save(predictions, "predictions.pt")


context = det.pytorch.init()

# you can access values from your config's .data field
# which is just a dictionary of arbitrary user data
trial_id = context.config_data["trial_id"]

# load a trial from a checkpoint
my_trial = context.load_checkpoint_trial(OneVarPytorchTrial, trial_id=trial_id)

# You are still free to shard your batch_size but since we are not training
# there isn't any particular need to.
batch_size = context.config_data["batch_size"]

# build a dataset, same as for training
pred_data = stoker.pytorch.DataLoader(OnesDataset(), batch_size=batch_size)

predictions = context.predict(my_trial, pred_data)

# you'll want to upload your predictions to somewhere persistent
my_upload_fn(predictions)
