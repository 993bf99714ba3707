//! What happened: the events of a run, and the readers and writers of profiler traces.
