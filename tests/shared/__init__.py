"""What several tests use: models, runs, references. No test is here, and no test imports another."""
