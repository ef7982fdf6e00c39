#!/usr/bin/env python3
"""Verify evidence files of fleetledger: python3 verify.py --key KEY [--witness KEY]... FILE...

A second reading of the format, with Python's standard library and nothing of the
ledger's code. It checks the checkpoint's signature, every header, hash, chain and
payload, every inclusion proof, who erased what is not there, and that no stream goes
on where the file ends, by a root over the heads of all streams. It does not make the
decisions again: whether a gate, an approval or a verdict was decided rightly is for
`fleetledger evidence verify`.

One line of JSON is printed for each file; exit code 1 if any has a finding.
"""

import argparse
import base64
import binascii
import datetime
import hashlib
import json
import re
import sys

FORMAT, KEYLESS_FORMAT, MAX_EVENTS, MAX_BYTES, MAX_NAME = "fleetledger-evidence/3", "fleetledger-evidence/2", 20_000, 48 << 20, 160
MAX_SIGNATURES = 100  # of one checkpoint: package note of Go reads no more
ERASABLE = {
    "task.submitted", "task.reported", "task.cancelled", "memory.recorded", "memory.consolidated", "conclusion.recorded", "section.revised",
    "block.published", "block.accepted",
}


def not_checked(complete_to, witnessed):
    later = f"whether the task has events behind position {complete_to}, and whether the root over all streams is right"
    return [
        "decisions: gates, approvals and the verdict are not decided again",
        later if complete_to else "whether the task or the settings have later events that were left out",
        "whether the key given was retired before, and whether keys were changed by whoever may",
        "whether anybody was shown another log under this name" + (f" behind position {witnessed}, or without asking for a witness" if witnessed else ""),
        "whether a machine did what its report says",
    ]


# --- Ed25519 (RFC 8032), verification only, plain and not in constant time ---

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(p, q):  # extended coordinates (X, Y, Z, T), x = X/Z, y = Y/Z, xy = T/Z
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(n, p):
    q = (0, 1, 1, 0)
    while n:
        if n & 1:
            q = add(q, p)
        p, n = add(p, p), n >> 1
    return q


def decompress(b):
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, (y & (1 << 255) - 1) % P
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P:
        raise ValueError("the key is no point of the curve")
    if x & 1 != sign:
        x = -x % P
    return x, y, 1, x * y % P


def compress(p):
    inverse = pow(p[2], P - 2, P)
    x, y = p[0] * inverse % P, p[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed_by(key, text, signature):
    if len(signature) != 64:
        return False
    s = int.from_bytes(signature[32:], "little")
    if s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
    x, y, z, t = multiply(k, decompress(key))
    return compress(add(multiply(s, BASE), (-x % P, y, z, -t % P))) == signature[:32]


# --- checkpoints: C2SP signed-note and tlog-checkpoint ---


def parse_key(text, kind=b"\x01"):
    name, given, data = text.split("+", 2)
    raw = base64.b64decode(data, validate=True)
    if raw[:1] != kind or len(raw) != 33:
        raise ValueError("it is no Ed25519 key")
    key_id = hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]
    if key_id.hex() != given:
        raise ValueError("its id is not that of the key")
    return name, key_id, raw[1:]


def parse_checkpoint(note):
    """Return (origin, size, root) that a note claims, its text, and its signatures."""
    cut = note.rfind("\n\n")
    if cut < 0 or not note.endswith("\n"):
        raise ValueError("the checkpoint has no signatures")
    text, signatures = note[: cut + 1], []
    lines = note[cut + 2 : -1].split("\n")
    if len(lines) > MAX_SIGNATURES or any(c < " " and c != "\n" for c in note):
        raise ValueError("the checkpoint has too many signatures, or control characters")
    for line in lines:
        m = re.fullmatch("— ([^\\s+]+) ([A-Za-z0-9+/=]+)", line)
        if not m:
            raise ValueError("a signature of the checkpoint is malformed")
        signatures.append((m[1], base64.b64decode(m[2], validate=True)))
        if len(signatures[-1][1]) < 5:
            raise ValueError("a signature of the checkpoint is malformed")
    lines = text.split("\n")
    if len(lines) != 4 or not re.fullmatch("0|[1-9][0-9]{0,18}", lines[1]):
        raise ValueError("the checkpoint is malformed")
    root = base64.b64decode(lines[2], validate=True)
    if len(root) != 32:
        raise ValueError("the root of the checkpoint is malformed")
    return (lines[0], int(lines[1]), root), text, signatures


def first_by_key(signatures):
    """Return the first signature of each key: only that one counts."""
    first = {}
    for signer, raw in signatures:
        first.setdefault((signer, raw[:4]), (signer, raw))
    return list(first.values())


def read_checkpoint(note, keys):
    """Return (origin, size, root) of a note that one of the keys signed."""
    claims, text, signatures = parse_checkpoint(note)
    verified = set()
    for signer, raw in first_by_key(signatures):
        for name, key_id, key in keys:
            if (name, key_id) == (signer, raw[:4]):
                if not signed_by(key, text.encode(), raw[4:]):
                    raise ValueError("the signature of the checkpoint is invalid")
                verified.add(name)
    if claims[0] not in verified:
        raise ValueError("the checkpoint is not signed by a key given")
    return claims


# --- witnesses: C2SP tlog-cosignature ---


def check_witnessed(witnessed, checkpoint, witnesses):
    """Return how many events of the file's log one of the witnesses has cosigned."""
    by = False
    if witnessed:
        claims, text, signatures = parse_checkpoint(witnessed["checkpoint"])
        proof = [bytes.fromhex(matching(HASH, p)) for p in witnessed["proof"]]
        if claims[0] != checkpoint[0] or claims[1] == 0 or not consistent(claims[1], claims[2], checkpoint[1], checkpoint[2], proof):
            raise ValueError("the cosigned checkpoint is not proved to be of the log of this file")
        for signer, raw in first_by_key(signatures):
            for name, key_id, key in witnesses:
                if (name, key_id) == (signer, raw[:4]):
                    stamped = f"cosignature/v1\ntime {int.from_bytes(raw[4:12], 'big')}\n{text}"
                    if not signed_by(key, stamped.encode(), raw[12:]):
                        raise ValueError("a cosignature is invalid")
                    by = True
    if witnesses and not by:
        raise ValueError("no witness whose key was given has cosigned the log of this file")
    return claims[1] if by else 0


# --- keys that change: whoever trusts one that is retired follows from it ---


def counting(ring, size):
    """Return the keys of a ring that count for a checkpoint of this size."""
    return [k["key"] for k in ring if k["until"] is None or size <= k["until"]]


def read_ring(events, head, checkpoint, find):
    """Return the keys that the file's events name, and the checkpoints shown to be of its log."""
    ring, shown, proofs = [], [], {k["position"]: k["proof"] for k in head.get("keys", [])}
    if [k["position"] for k in head.get("keys", [])] != sorted(proofs):
        find("the proofs of last checkpoints are out of order")
    for event in events:
        h, text = event["header"], event["payload"]
        if h["stream"] != "ledger" or h["type"] not in ("key.added", "key.retired"):
            continue
        retired = h["type"] == "key.retired"
        proof = proofs.pop(h["position"], None)
        if retired != (proof is not None):
            find("the head does not prove of what log the last checkpoint of the key is", h["position"])
            continue
        if not event["whole"] or not event["proved"](checkpoint):
            continue  # told elsewhere
        kinds = {"verifier_key": str, "size": int, "checkpoint": str, "permit": dict} if retired else {"verifier_key": str}
        try:
            e = parse_line(text.encode(), kinds, {"reason": str, "permit": dict})
            key = parse_key(e["verifier_key"])
            known = [k for k in ring if k["key"] == key]
            if not retired:
                if known or any(k["key"][0] != key[0] for k in ring):
                    raise ValueError("the key was added before, or is of another log")
                ring.append({"key": key, "added": h["position"], "until": None, "last": None})
                continue
            if not known or known[0]["until"] is not None or sum(k["until"] is None for k in ring) == 1:
                raise ValueError("the key was never added, was retired before, or is the only one")
            claims, _, _ = parse_checkpoint(e["checkpoint"])
            last = read_checkpoint(e["checkpoint"], counting(ring, claims[1]))
            if last[1] != e["size"] or last[1] >= h["position"]:
                raise ValueError("the last checkpoint of the key has another size")
            known[0].update(until=last[1], last=e["checkpoint"])
            if not consistent(last[1], last[2], checkpoint[1], checkpoint[2], [bytes.fromhex(matching(HASH, p)) for p in proof]):
                raise ValueError("the last checkpoint of the key is not proved to be of this log")
            shown.append(last)
        except (ValueError, RecursionError) as err:
            find(err, h["position"])
    for position in proofs:
        find("the retirement of a key is not in the file", position)
    return ring, shown


def trusted(ring, keys, notes, shown):
    """Return what of the ring follows from the keys given."""
    known = [k for k in ring if k["key"] in keys]
    grown = True
    while grown:
        grown = False
        for note in notes + [k["last"] for k in ring if k["last"]]:
            try:
                claims, _, _ = parse_checkpoint(note)
                c = read_checkpoint(note, counting(known, claims[1]))
            except ValueError:
                continue
            for k in ring:
                if c in shown and k["added"] <= c[1] and k not in known:
                    known, grown = known + [k], True
    return known


def verified_checkpoint(head, keys, events, find):
    """Return the file's checkpoint, if a key given signed it or one that follows."""
    note = head["checkpoint"]
    claims, _, _ = parse_checkpoint(note)
    ring, shown = read_ring(events, head, claims, find)
    known = trusted(ring, keys, [note], shown + [claims])
    try:
        return read_checkpoint(note, counting(known, claims[1]))
    except ValueError:
        return read_checkpoint(note, [k for k in keys if k not in [r["key"] for r in ring]])


# --- events ---

NAME, TEXT, HASH, COUNT = "[!#-\\[\\]-~]{1,160}", "[!#-\\[\\]-~]{0,160}", "[0-9a-f]{64}", "0|[1-9][0-9]*"
FIELDS = [  # in their one order; those of COUNT are numbers
    ("id", NAME), ("stream", NAME), ("type", NAME), ("schema", "[1-9][0-9]*"), ("actor", NAME), ("correlation", TEXT),
    ("causation", TEXT), ("key", f"({HASH})?"), ("request", f"({HASH})?"), ("size", COUNT), ("commitment", HASH), ("version", "1"),
    ("fleet", "[a-z0-9][a-z0-9._-]{0,63}"), ("position", "[1-9][0-9]*"), ("revision", "[1-9][0-9]*"),
    ("time", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z"), ("prev", f"({HASH})?"),
]
NUMBERS = {"schema", "size", "version", "position", "revision"}
HEADER = re.compile("{" + ",".join(f'"{n}":(?P<{n}>{p})' if n in NUMBERS else f'"{n}":"(?P<{n}>{p})"' for n, p in FIELDS) + "}")


def parse_header(leaf):
    m = HEADER.fullmatch(leaf)
    if not m:
        raise ValueError("the header is not in its one canonical form")
    h = {n: int(v) if n in NUMBERS else v for n, v in m.groupdict().items()}
    if max(h[n] for n in NUMBERS) >= 2**63 or "0" * 64 in (h["key"], h["request"], h["commitment"], h["prev"]):
        raise ValueError("the header has a value that none has")
    datetime.datetime.strptime(h["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
    if (h["revision"] == 1) != (h["prev"] == ""):
        raise ValueError("exactly the first event of a stream has no previous one")
    return h


def included(index, size, leaf, proof, root):  # RFC 9162, 2.1.3.2
    fn, sn, r = index, size - 1, leaf
    for p in proof:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = hashlib.sha256(b"\x01" + p + r).digest()
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = hashlib.sha256(b"\x01" + r + p).digest()
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == root


def consistent(old, old_root, size, root, proof):  # RFC 9162, 2.1.4.2
    if old == 0 or old == size:
        return not proof and (old == 0 or old_root == root)
    if old > size or not proof:
        return False
    if old & (old - 1) == 0:
        proof = [old_root] + proof
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = proof[0]
    for p in proof[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = hashlib.sha256(b"\x01" + p + fr).digest(), hashlib.sha256(b"\x01" + p + sr).digest()
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = hashlib.sha256(b"\x01" + sr + p).digest()
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == old_root and sr == root


def parse_line(line, required, optional=()):
    def unique(pairs):
        if len({n for n, _ in pairs}) != len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    return shaped(json.loads(line.decode("utf-8"), object_pairs_hook=unique), required, optional)


def shaped(value, required, optional=()):
    """Return value if it is an object of these members."""
    kinds = dict(required, **dict(optional))
    if type(value) is not dict or not set(required) <= set(value) <= set(kinds) or any(type(v) is not kinds[n] for n, v in value.items()):
        raise ValueError("the line is not as the format has it")
    return value


def matching(pattern, text):
    if not re.fullmatch(pattern, text):
        raise ValueError("a value in the file is malformed")
    return text


# --- the heads of all streams: a trie over their names, bit by bit ---


def bit_of(name, bit):
    b = name.encode()
    return b[bit // 8] >> (7 - bit % 8) & 1 if bit // 8 < len(b) else 0


def head_of(root, stream, proof):
    """Return (revision, leaf hash) of a stream's head under a root, (0, "") if it has none."""
    found, below = proof["found"], 8 * (MAX_NAME + 1)
    h = hashlib.sha256(
        b"\x00" + found["stream"].encode() + b"\x00" + found["revision"].to_bytes(8, "big") + bytes.fromhex(found["leaf_hash"])
    ).digest()
    for step in proof["path"]:
        if not 0 <= step["bit"] < below:
            raise ValueError("the bits of a proof do not fall on the way up")
        below, side, other = step["bit"], bit_of(found["stream"], step["bit"]), bytes.fromhex(step["hash"])
        if bit_of(stream, step["bit"]) != side:
            raise ValueError("the name of a stream does not lead to what is proved")
        left, right = (other, h) if side else (h, other)
        h = hashlib.sha256(b"\x01" + step["bit"].to_bytes(2, "big") + left + right).digest()
    if h.hex() != root:
        raise ValueError("the head of a stream is not proved")
    return (found["revision"], found["leaf_hash"]) if found["stream"] == stream else (0, "")


def parse_heads(heads):
    """Check the form of the head's proofs."""
    shaped(heads, {"position": int, "proofs": list})
    if heads["position"] < 0:
        raise ValueError("the line is not as the format has it")
    for p in heads["proofs"]:
        shaped(p, {"stream": str, "found": dict, "path": list})
        shaped(p["found"], {"stream": str, "revision": int, "leaf_hash": str})
        if not 0 <= p["found"]["revision"] < 2**64:
            raise ValueError("the line is not as the format has it")
        for s in p["path"]:
            matching(f"({HASH})?", shaped(s, {"bit": int, "hash": str})["hash"])
        matching(f"({HASH})?", p["found"]["leaf_hash"])
    return heads


def check_heads(head, told, streams, find):
    """Hold every stream against the root over all heads; return the position that the task is complete to."""
    heads, root = head.get("heads"), None
    for h, text in told:
        if h["type"] != "heads.rooted":
            continue
        if not heads or heads["position"] != h["position"]:
            find("nothing in the file is proved under this root", h["position"])
            continue
        root = parse_line(text.encode(), {"at": int, "streams": int, "root": str})
        if h["actor"] != "@relay" or not 0 < root["at"] < h["position"]:
            find("only the relay roots the heads of streams, and of a position before", h["position"])
            return 0
    if heads and not root:
        find("the root that the head names is not in the file", heads["position"])
    if not heads or not root:
        return 0
    task, proved = "task-" + head["task_id"], {}
    shown = {"authority": [], "settings": [], **streams}
    names = [p["stream"] for p in heads["proofs"]]
    if names != sorted(shown):
        find("the heads that are proved are not those of the file's streams", heads["position"])
        return 0
    for p in heads["proofs"]:
        matching(NAME, p["found"]["stream"])
        if p["found"]["revision"] == 0 or not p["found"]["leaf_hash"] or not all(s["hash"] for s in p["path"]):
            raise ValueError("a proof of a head is malformed")
        proved[p["stream"]] = head_of(root["root"], p["stream"], p)
    complete = False
    for name, have in shown.items():
        revision, leaf = proved[name]
        n = sum(1 for position, _ in have if position <= root["at"])
        if revision < n or revision == n and n and have[n - 1][1] != leaf:
            find("the root over all streams has another head of " + name, heads["position"])
        elif revision > n and (name not in ("authority", "settings") or n == len(have) and (not n or have[-1][0] < streams[task][-1][0])):
            find(f"the stream {name} had revision {revision}, and the file shows it to {n}: what comes after was left out", root["at"])
        elif name == task:
            complete = revision == n
    return root["at"] if complete else 0


def check_erased(erased, told, positions, find):
    """Hold every payload that is not there against the event that tells who erased it."""
    of = {}
    for h, text in told:
        if h["type"] == "payload.erased":
            e = parse_line(
                text.encode(), {"event_id": str, "position": int, "stream": str, "type": str, "reason": str, "permit": dict}, {"slug": str}
            )
            of[e["position"]] = e, h["position"]
            if e["position"] >= h["position"]:
                find("it tells of a position that is not before it", h["position"])
    for h in erased:
        e, _ = of.get(h["position"], (None, 0))
        if not e:
            find("its payload is not there, and no event here says that it was erased", h["position"])
        elif (e["event_id"], e["stream"], e["type"]) != (h["id"], h["stream"], h["type"]):
            find("its payload is not there, and what is said to have been erased is another", h["position"])
    for position, (_, at) in of.items():
        if position not in {h["position"] for h in erased}:
            find("it tells of an erasure that the file does not show", position if position in positions else at)


def check_event(line, head, last, heads):
    """Check one event, after the one last, by itself; return it, and what is wrong."""
    e = parse_line(line, {"leaf": str, "proof": list}, {"salt": str, "payload": str, "erased": bool})
    h = parse_header(e["leaf"])
    leaf = hashlib.sha256(b"\x00" + e["leaf"].encode()).digest()
    salt, payload, wrong, whole = e.get("salt", ""), e.get("payload", "").encode(), [], False
    if e.get("erased", False):
        if salt or payload:
            wrong.append("it is said to be erased, and it has a salt or a payload")
        elif h["type"] not in ERASABLE:
            wrong.append("its payload is not there, and is never erased")
    elif not re.fullmatch("[0-9a-f]{32}", salt):
        wrong.append("the salt is malformed")
    elif len(payload) != h["size"] or hashlib.sha256(bytes.fromhex(salt) + payload).hexdigest() != h["commitment"]:
        wrong.append("the payload is not what the header commits to")
    else:
        whole = True
    if h["fleet"] != head["fleet"]:
        wrong.append("it is of another fleet")
    ledger = h["stream"] == "ledger"
    of_keys = h["type"] in ("key.added", "key.retired") and head["format"] != KEYLESS_FORMAT
    if ledger and h["type"] not in ("heads.rooted", "payload.erased") and not of_keys:
        wrong.append("such events of this stream are no evidence of the task")
    if not ledger and h["stream"] not in ("authority", "settings", "task-" + head["task_id"]) and not h["stream"].startswith("gate-"):
        wrong.append("events of this stream are no evidence of the task")
    if last and (h["position"] <= last["position"] or h["time"] < last["time"]):
        wrong.append("position or time do not rise")
    revision, prev = heads.get(h["stream"], (0, ""))
    if not ledger:
        if h["revision"] != revision + 1 or h["prev"] != prev:
            wrong.append("it does not follow the event before it in its stream")
        heads[h["stream"]] = h["revision"], leaf.hex()
    proof = [bytes.fromhex(p) for p in e["proof"] if type(p) is str and re.fullmatch(HASH, p)]

    def proved(checkpoint):
        _, size, root = checkpoint
        return len(proof) == len(e["proof"]) and h["position"] <= size and included(h["position"] - 1, size, leaf, proof, root)

    return {"header": h, "leaf": leaf.hex(), "payload": e.get("payload", ""), "erased": bool(e.get("erased", False)), "proved": proved, "whole": whole}, wrong


def verify(data, keys, witnesses):
    findings, erased, last, heads, checked = [], [], None, {}, []
    told, streams, complete_to, witnessed = [], {}, 0, 0

    def find(detail, position=0):
        findings.append({"position": position, "detail": str(detail)})

    try:
        if len(data) > MAX_BYTES or not data.endswith(b"\n"):
            raise ValueError("the file is too long, or was cut")
        first, *lines = data[:-1].split(b"\n")
        members = {"format": str, "origin": str, "fleet": str, "task_id": str, "events": int, "checkpoint": str}
        head = parse_line(first, members, {"heads": dict, "keys": list, "witnessed": dict})
        if head["format"] not in (FORMAT, KEYLESS_FORMAT):
            raise ValueError("the format is another")
        if "heads" in head:
            parse_heads(head["heads"])
        for k in head.get("keys", []):
            for p in shaped(k, {"position": int, "proof": list})["proof"]:
                matching(f"({HASH})?", p)
        if "witnessed" in head:
            for p in shaped(head["witnessed"], {"checkpoint": str, "proof": list})["proof"]:
                matching(f"({HASH})?", p)
    except (ValueError, RecursionError, TypeError) as err:
        find(err)
        return findings, 0, 0, 0, 0
    if len(lines) != head["events"] or len(lines) > MAX_EVENTS:
        find(f"the file has {len(lines)} events, its head says {head['events']}")
    for line in lines[:MAX_EVENTS]:
        try:
            e, wrong = check_event(line, head, last, heads)
            last = e["header"]
            checked.append(e)
            if e["erased"]:
                erased.append(last)
            if last["stream"] == "ledger":
                told.append((last, e["payload"]))
            else:
                streams.setdefault(last["stream"], []).append((last["position"], e["leaf"]))
            for detail in wrong:
                find(detail, last["position"])
        except (ValueError, RecursionError) as err:
            find(err, last["position"] if last else 0)
    try:
        checkpoint = verified_checkpoint(head, keys, checked, find)
        if checkpoint[0] != head["origin"] or not checkpoint[0].endswith("/" + head["fleet"]):
            find("the checkpoint is of another log or fleet than the file")
        for e in checked:
            if not e["proved"](checkpoint):
                find("it is not proved to be in the log", e["header"]["position"])
        try:
            witnessed = check_witnessed(head.get("witnessed"), checkpoint, witnesses)
        except ValueError as err:
            find(err)
    except ValueError as err:
        find(f"{err}: nothing is proved to be in a log")
    for stream in ("authority", "task-" + head["task_id"]):
        if stream not in heads:
            find("the file has no event of stream " + stream)
    if not findings:  # only what is whole is looked into
        try:
            positions = {p for have in streams.values() for p, _ in have}
            check_erased(erased, told, positions, find)
            complete_to = check_heads(head, told, streams, find)
        except (ValueError, RecursionError) as err:
            find(err)
    return findings, len(lines), len(erased), 0 if findings else complete_to, 0 if findings else witnessed


def main():
    options = argparse.ArgumentParser(description="Verify evidence files of fleetledger.")
    options.add_argument("--key", action="append", required=True, help="verifier key of the log; may be repeated")
    options.add_argument("--witness", action="append", default=[], help="key of a witness; may be repeated")
    options.add_argument("file", nargs="+")
    given = options.parse_args()
    try:
        keys, witnesses = [parse_key(k) for k in given.key], [parse_key(k, b"\x04") for k in given.witness]
    except (ValueError, binascii.Error) as err:
        options.error(f"--key or --witness: {err}")
    ok = True
    for name in given.file:
        with open(name, "rb") as f:
            findings, events, erased, complete_to, witnessed = verify(f.read(MAX_BYTES + 1), keys, witnesses)
        ok = ok and not findings
        print(
            json.dumps(
                {
                    "file": name, "ok": not findings, "events": events, "erased": erased, "complete_to": complete_to,
                    "witnessed": witnessed, "findings": findings, "not_checked": not_checked(complete_to, witnessed),
                }
            )
        )
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
