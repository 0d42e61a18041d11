"""Estimators, monitored sessions, and the end of a process."""
