"""What is saved: checkpoints, exported models, the tools that read them, damage and death."""
