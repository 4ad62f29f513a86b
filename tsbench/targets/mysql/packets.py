"""Whether a server's answer to a statement has come as a whole, seen from its first bytes (text protocol).

An answer is a sequence of packets: 3 bytes of length, 1 of sequence, and the payload. It is one packet (OK or an
error), or the number of columns, a packet for each, and the rows up to a packet that ends them; older servers end the
columns so too. From https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response.html.
"""

from __future__ import annotations

_OK, _LOCAL_FILE, _END, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_COLUMNS_FOLLOW = b"\x01"
"""What MariaDB sends after the number of columns, where it may also leave out what the client knows already."""
_HEADER_BYTES = 4
_EOF_BYTES = 5
"""Payload of the packet that ends the columns: marker, warnings and status."""


def is_end(buffer: bytearray, nbytes: int) -> bool:
    """Return `is_whole` for the first `nbytes` bytes of a buffer, whose length is the limit."""
    if _HEADER_BYTES < nbytes < len(buffer) and buffer[_HEADER_BYTES] == _OK:  # without a copy
        return nbytes == _HEADER_BYTES + int.from_bytes(buffer[:3], "little")
    return is_whole(bytes(memoryview(buffer)[:nbytes]), len(buffer))


def is_whole(received: bytes, limit: int) -> bool:
    """Return True if the bytes are a whole answer; False also if they are `limit` bytes, and if they are no answer."""
    if len(received) >= limit:
        return False
    if len(received) > _HEADER_BYTES and received[_HEADER_BYTES] == _OK:  # most answers to writes
        return len(received) == _HEADER_BYTES + int.from_bytes(received[:3], "little")
    packets = _packets(received)
    if packets is None or not packets:
        return False
    first = packets[0]
    if first[0] == _ERROR:
        return len(packets) == 1
    if first[0] == _LOCAL_FILE or first[1:] not in {b"", _COLUMNS_FOLLOW}:  # nor more than 250 columns
        return False
    rows = packets[1 + first[0] :]
    if rows and len(rows[0]) == _EOF_BYTES and rows[0][0] == _END:
        rows = rows[1:]
    return bool(rows) and rows[-1][0] in {_END, _ERROR}


def _packets(received: bytes) -> list[bytes] | None:
    """Return the payloads; None if the last is incomplete, or one is empty."""
    packets, at = [], 0
    while at < len(received):
        length = int.from_bytes(received[at : at + 3], "little")
        end = at + _HEADER_BYTES + length
        if not length or end > len(received):
            return None
        packets.append(received[at + _HEADER_BYTES : end])
        at = end
    return packets
