"""What holds for every training run, whatever the optimizer, the tier, the threads and the interruptions."""
