"""What a team would write in an hour: an in-memory aiohttp + numpy server that sums dense reports.

One POST of raw little-endian float32 is one report: length and finiteness are checked, it is added into one
float64 vector, the answer is 204. No disk, no duplicates check, no crash safety, no authentication.
`server/benches/ingest` starts it and measures both in one run.

    pip install -r benches/rivals/requirements.txt
    python3 benches/rivals/aiohttp_server.py P      # prints the port it listens on
"""

import os

# One thread: on a busy two-core machine a pool only competes with itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import asyncio
import sys

import numpy as np
import uvloop
from aiohttp import web


def application(p):
    length = p * (p + 1) // 2
    state = {"sum": np.zeros(length), "n": 0}

    async def report(request):
        body = await request.read()
        if len(body) != 4 * length:
            return web.Response(status=400)
        values = np.frombuffer(body, dtype="<f4")
        if not np.isfinite(values).all():
            return web.Response(status=400)
        state["sum"] += values
        state["n"] += 1
        return web.Response(status=204)

    async def count(_):
        return web.json_response({"n": state["n"]})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/reports", report)
    app.router.add_get("/count", count)
    return app


async def main(p):
    runner = web.AppRunner(application(p), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
