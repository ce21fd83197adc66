"""Network interfaces of a namespace over rtnetlink(7), like `ip link` and `ip address`."""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType

RTM_NEWLINK, RTM_NEWADDR = 16, 20
NLMSG_ERROR = 2
NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE = 1, 4, 0x200, 0x400
IFLA_IFNAME, IFLA_MASTER, IFLA_LINKINFO, IFLA_NET_NS_FD = 3, 10, 18, 28
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2
IFF_UP = 1


class Links:
    """The interfaces of this process's network namespace at the time of construction."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def __enter__(self) -> Links:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        """Adds a bridge."""
        kind = _attribute(IFLA_LINKINFO, _attribute(IFLA_INFO_KIND, b"bridge"))
        self._new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, _link(), _name(name) + kind, f"add bridge {name}")

    def add_cable(self, name: str, bridge: str, far_name: str, far_namespace: int) -> None:
        """Adds a veth pair.

        Args:
            name: the interface in this namespace.
            bridge: the bridge to which it is attached.
            far_name: the peer's name.
            far_namespace: the descriptor of the peer's namespace.
        """
        far = _link() + _name(far_name) + _attribute(IFLA_NET_NS_FD, struct.pack("=I", far_namespace))
        data = _attribute(IFLA_INFO_DATA, _attribute(VETH_INFO_PEER, far))
        kind = _attribute(IFLA_LINKINFO, _attribute(IFLA_INFO_KIND, b"veth") + data)
        master = _attribute(IFLA_MASTER, struct.pack("=I", socket.if_nametoindex(bridge)))
        self._new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, _link(), _name(name) + kind + master, f"add link {name}")

    def add_address(self, name: str, address: str, prefix: int) -> None:
        """Adds an IPv4 address with a prefix length to an interface."""
        packed = socket.inet_aton(address)
        header = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(name))
        attributes = _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed)
        self._new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, header, attributes, f"add address {address} to {name}")

    def up(self, name: str) -> None:
        """Sets an interface up."""
        self._new(RTM_NEWLINK, 0, _link(socket.if_nametoindex(name), IFF_UP), b"", f"set {name} up")

    def _new(self, kind: int, flags: int, header: bytes, attributes: bytes, what: str) -> None:
        body = header + attributes
        prologue = struct.pack("=IHHII", 16 + len(body), kind, flags | NLM_F_REQUEST | NLM_F_ACK, 0, 0)
        self._socket.send(prologue + body)
        answer = self._socket.recv(65536)
        (answered,) = struct.unpack_from("=H", answer, 4)
        (error,) = struct.unpack_from("=i", answer, 16)
        if answered == NLMSG_ERROR and error:
            raise OSError(-error, os.strerror(-error), what)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _name(name: str) -> bytes:
    return _attribute(IFLA_IFNAME, name.encode() + b"\0")


def _link(index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)
