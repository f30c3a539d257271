"""What a team would write with aiohttp and numpy: a server that sums dense reports, in memory or in SQLite.

One POST is one report: 16 bytes of identifier and little-endian float32 values. Length and finiteness are checked, the
values are added into one float64 vector, the answer is 204. With a file, identifier and sum are committed before the
answer (WAL, full sync; whatever waits goes into one commit) and a report that comes twice counts once; without one
there is no disk and no check of identifiers. No authentication. `server/benches/ingest` starts both and measures all
in one run.

    pip install -r benches/rivals/requirements.txt
    python3 benches/rivals/aiohttp_server.py P [SQLITE_FILE]      # prints the port it listens on
"""

import os

# One thread: on a busy two-core machine a pool only competes with itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import asyncio
import sqlite3
import sys

import numpy as np
import uvloop
from aiohttp import web

ID_LEN = 16


class InMemory:
    def __init__(self, length):
        self.sum, self.n = np.zeros(length), 0

    async def add(self, _, values):
        self.sum += values
        self.n += 1


class Durable:
    def __init__(self, length, file):
        self.file, self.sum, self.n = file, np.zeros(length), 0
        self.waiting, self.arrived = [], asyncio.Event()
        self.database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self.database.executescript(
            """PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            CREATE TABLE reports (id BLOB PRIMARY KEY) WITHOUT ROWID;
            CREATE TABLE sums (sum BLOB, n INTEGER);
            INSERT INTO sums VALUES (x'', 0);"""
        )
        self.writer = asyncio.create_task(self.write())

    async def add(self, identifier, values):
        committed = asyncio.get_running_loop().create_future()
        self.waiting.append((identifier, values, committed))
        self.arrived.set()
        await committed

    async def write(self):
        while True:
            await self.arrived.wait()
            self.arrived.clear()
            group, self.waiting = self.waiting, []
            await asyncio.to_thread(self.commit, group)
            for _, _, committed in group:
                committed.set_result(None)

    def commit(self, group):
        run = self.database.execute
        run("BEGIN IMMEDIATE")
        for identifier, values, _ in group:
            if run("INSERT OR IGNORE INTO reports VALUES (?)", (identifier,)).rowcount:
                self.sum += values
                self.n += 1
        run("UPDATE sums SET sum = ?, n = ?", (self.sum.data, self.n))
        run("COMMIT")


def application(length, store):
    async def report(request):
        body = await request.read()
        if len(body) != ID_LEN + 4 * length:
            return web.Response(status=400)
        values = np.frombuffer(body, dtype="<f4", offset=ID_LEN)
        if not np.isfinite(values).all():
            return web.Response(status=400)
        await store.add(body[:ID_LEN], values)
        return web.Response(status=204)

    async def count(_):
        return web.json_response({"n": store.n})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/reports", report)
    app.router.add_get("/count", count)
    return app


async def main(p, *file):
    length = p * (p + 1) // 2
    store = Durable(length, *file) if file else InMemory(length)
    runner = web.AppRunner(application(length, store), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), *sys.argv[2:]))
