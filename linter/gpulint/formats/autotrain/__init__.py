"""AutoTrain configs."""
