"""Holds the profiler alone."""
