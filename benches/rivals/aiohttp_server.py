"""The one-hour server that a study would otherwise write: a running sum in memory, no disk, no identifiers.

POST /sum with P(P+1)/2 little-endian float32: length and finiteness are checked, the numbers are added to one float64
vector, the answer is 204. GET /count answers how many were added. Prints its port on one line.

    python3 -m venv rival && rival/bin/pip install aiohttp uvloop numpy
    rival/bin/python benches/rivals/aiohttp_server.py 100

Measured beside ours by `cargo bench -p eigenveil-server --bench ingest -- rival rival/bin/python`.
"""

import asyncio
import sys

import numpy as np
import uvloop
from aiohttp import web


def main() -> None:
    dimension = int(sys.argv[1])
    entries = dimension * (dimension + 1) // 2
    total = np.zeros(entries)
    count = 0

    async def add(request: web.Request) -> web.Response:
        nonlocal count
        body = await request.read()
        if len(body) != 4 * entries:
            return web.Response(status=422)
        report = np.frombuffer(body, dtype="<f4")
        if not np.isfinite(report).all():
            return web.Response(status=422)
        np.add(total, report, out=total)
        count += 1
        return web.Response(status=204)

    async def counted(_: web.Request) -> web.Response:
        return web.Response(text=str(count))

    async def serve() -> None:
        app = web.Application(client_max_size=4 * entries + 1)
        app.router.add_post("/sum", add)
        app.router.add_get("/count", counted)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(serve())


if __name__ == "__main__":
    main()
