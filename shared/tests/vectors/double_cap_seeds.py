"""Expansion of double-cap seeds by an implementation of its own: ChaCha12 in plain Python, normal
quantiles by mpmath instead of AS 241. Writes double_cap_seeds.json beside itself.

    python3 -m pip install mpmath && python3 shared/tests/vectors/double_cap_seeds.py
"""
import json, pathlib, struct
from mpmath import mp, mpf, erfinv, sqrt, nstr

mp.dps = 40
DOMAIN = b"eigenveil-dcap-1"
MASK = 0xFFFFFFFF


def quarter(s, a, b, c, d):
    for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & MASK
        v = s[z] ^ s[x]
        s[z] = ((v << turn) | (v >> (32 - turn))) & MASK


def block(key, counter):
    state = list(struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key))
    state += [counter & MASK, counter >> 32, 0, 0]
    s = state[:]
    for _ in range(6):
        quarter(s, 0, 4, 8, 12), quarter(s, 1, 5, 9, 13), quarter(s, 2, 6, 10, 14), quarter(s, 3, 7, 11, 15)
        quarter(s, 0, 5, 10, 15), quarter(s, 1, 6, 11, 12), quarter(s, 2, 7, 8, 13), quarter(s, 3, 4, 9, 14)
    return struct.pack("<16I", *((a + b) & MASK for a, b in zip(s, state)))


def words(seed, count):
    stream = b"".join(block(seed + DOMAIN, i) for i in range((8 * count + 63) // 64))
    return struct.unpack(f"<{count}Q", stream[: 8 * count])


vectors = []
for seed, p in [
    (bytes(16), 3),
    (bytes(range(16)), 2),
    (bytes.fromhex("ffffffffffffffffffffffffffffffff"), 5),
    (b"sixteen byte key", 40),
]:
    w = words(seed, p)
    z = [sqrt(2) * erfinv(2 * (mpf(2 * (x >> 12) + 1) / 2**53) - 1) for x in w]
    length = sqrt(sum(v * v for v in z))
    vectors.append(
        {
            "seed": seed.hex(),
            "words": [f"{x:016x}" for x in w],
            "direction": [float(nstr(v / length, 20)) for v in z],
        }
    )
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, indent=1) + "\n")
