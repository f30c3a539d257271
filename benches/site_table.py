"""A site's report of 10^6 x 400 beside numpy's X.T @ X, in one run, with one thread and with all.

    pip install numpy && python benches/site_table.py [ROWS P]        (3.5 GB of memory for numpy's table)
"""

import json
import os
import subprocess
import sys

ROWS, P = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (1_000_000, 400)
NUMPY = f"""
import numpy, resource, time
x = numpy.sin(numpy.arange(1 << 15)[:, None] * 31.0 + numpy.arange({P}) * 17.0)
x = numpy.tile(x, ({ROWS} // len(x) + 1, 1))[:{ROWS}]
before = time.perf_counter()
x.T @ x
print(f"{{time.perf_counter() - before:.2f}} s; {{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000}} MB with the table")
"""


def main():
    built = subprocess.run(
        ["cargo", "bench", "-p", "eigenveil-shared", "--bench", "table", "--no-run", "--message-format", "json"],
        check=True, capture_output=True, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    program = [message["executable"] for message in messages if message.get("executable")][-1]
    for turn in range(3):
        subprocess.run([program, str(ROWS), str(P)], check=True)
        for threads in (1, os.cpu_count()):
            environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads)}
            done = subprocess.run([sys.executable, "-c", NUMPY], check=True, capture_output=True, text=True, env=environment)
            print(f"numpy X.T @ X, {threads} threads: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
