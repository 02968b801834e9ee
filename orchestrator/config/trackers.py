"""The trackers of experiments that can be shown a study."""

from typing import Literal, get_args

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)
