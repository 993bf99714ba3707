"""Runs one trace tool in this process, or a command in a child, and prints its seconds and peak memory as JSON.

    trace_tools.py run COMMAND...     any program
    trace_tools.py hta TRACE          Holistic Trace Analysis: load, then its four common analyses
    trace_tools.py tracelens TRACE    TraceLens: tree, then kernel launchers
"""
import json
import os
import resource
import subprocess
import sys
import time


def holistic_trace_analysis(path):
    from hta.trace_analysis import TraceAnalysis

    # The plain constructor takes a folder or a file a rank; the file's name is relative to no folder.
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(visualize=False)
    analysis.get_cuda_kernel_launch_stats(visualize=False)


def tracelens(path):
    from TraceLens import TreePerfAnalyzer

    analyzer = TreePerfAnalyzer.from_file(path)
    analyzer.get_df_kernel_launchers()


def give_up_in_time():
    """Ends this process when it takes too long, or when memory runs out, before the machine has to."""
    import signal

    seconds = int(os.environ.get("BENCH_SECONDS_AT_MOST", "0"))
    if seconds:
        signal.signal(signal.SIGALRM, lambda *unused: sys.exit(f"not finished after {seconds} s"))
        signal.alarm(seconds)
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        resource.setrlimit(resource.RLIMIT_AS, (int(0.9 * total), resource.RLIM_INFINITY))


def main():
    mode, *arguments = sys.argv[1:]
    give_up_in_time()
    start = time.perf_counter()
    if mode == "run":
        # 0 and 1 are both answers: the trace has findings, or it has none.
        code = subprocess.run(arguments, stdout=subprocess.DEVNULL).returncode
        if code not in (0, 1):
            sys.exit(f"{arguments[0]} ended with {code}")
        who = resource.RUSAGE_CHILDREN
    else:
        {"hta": holistic_trace_analysis, "tracelens": tracelens}[mode](os.path.abspath(arguments[0]))
        who = resource.RUSAGE_SELF
    seconds = time.perf_counter() - start
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": resource.getrusage(who).ru_maxrss * unit}))


if __name__ == "__main__":
    main()
