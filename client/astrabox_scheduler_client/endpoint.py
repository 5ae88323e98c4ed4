"""Where the API server is and how to prove who we are: read from a pod's files or from a kubeconfig."""

import hashlib
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

# A watch delivers an object of up to 2 MiB as one line.
READ_BUFFER_BYTES: Final = 2**21
_MAX_CONNECTIONS: Final = 100
_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Tls:
    """Files and switches of the TLS connection; no CA file means the system's."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True

    def fingerprint(self) -> str:
        """Changes when the content of a file or a switch does. Raises OSError."""
        digest = hashlib.sha256(f"{self.server_name} {self.verify}".encode())
        for name in (self.ca_file, self.certificate_file, self.key_file):
            digest.update(b"\0" if name is None else hashlib.sha256(Path(name).read_bytes()).digest())
        return digest.hexdigest()

    def context(self) -> ssl.SSLContext:
        """A context for the client side. Raises OSError (ssl.SSLError) for files that are no PEM."""
        context = ssl.create_default_context(cafile=self.ca_file)
        # Python 3.13 turns this on; certificates that clusters made for themselves often lack the
        # extensions it asks for. kubectl accepts them; the chain and the name are checked all the same.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One reading of the configuration."""

    base_url: str
    namespace: str
    authorization: str | None
    tls: Tls
    tls_fingerprint: str
    proxy: str | None

    def same_route(self, other: "Endpoint") -> bool:
        """True when an open connection to `other` can go on being used."""
        return (self.base_url, self.tls_fingerprint, self.proxy) == (
            other.base_url,
            other.tls_fingerprint,
            other.proxy,
        )

    def session(self) -> aiohttp.ClientSession:
        """A pool of connections of our own. Raises OSError for TLS files that cannot be used.

        Not kubernetes-asyncio's: that one sets `trust_env`, with which aiohttp reads `~/.netrc` in a
        worker thread before each request.
        """
        context = self.tls.context() if self.base_url.startswith("https:") else True
        connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, ssl=context)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
            # The limit of the whole call is Transport's; this one tells a connect that failed from a
            # request that was sent.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            # Compressing costs the API server more than a network within the cluster saves.
            headers={"Accept-Encoding": "identity"},
        )


Loader = Callable[[], Awaitable[Endpoint]]
"""Reads the configuration anew. Raises errors.ConnectError."""


def environment_proxy(base_url: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for this server, as kubectl reads them."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme)
    if not proxy or proxy_bypass(host) or _in_networks(host, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _in_networks(host: str, no_proxy: str) -> bool:
    """Networks in NO_PROXY, which the standard library does not know, are how clusters write it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in no_proxy.split(","):
        try:
            if address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
