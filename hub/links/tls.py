"""TLS between nodes: each end shows its certificate and checks the other's.

Rules: the certificate of the cluster block serves both directions. As in nats-server, a node that dials in is
always asked for its certificate. `insecure` lets any certificate of the end that is dialled pass.
"""

from __future__ import annotations

import ssl
from dataclasses import replace

from edged.config.options import TlsOptions
from edged.server.certificate_names import read_names
from edged.server.tls_context import TlsConfigError, server_context


def accepting_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of the end that is dialled. TlsConfigError."""
    return server_context(replace(options, verify=True))


def dialling_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of the end that dials. TlsConfigError."""
    # It reads the same files, so that whatever is wrong with them is said in the same words.
    server_context(options)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    is_newest = options.min_version == "1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_newest else ssl.TLSVersion.TLSv1_2
    pairs = options.certs or ((options.cert_file, options.key_file),)
    cert_file, key_file = pairs[0]
    if cert_file is None:
        raise TlsConfigError("cluster tls: cert_file is missing")
    context.load_cert_chain(cert_file, key_file)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(cafile=options.ca_file)
    return context


def names_known_host(certificate_der: bytes | None, hosts: frozenset[str]) -> bool:
    """Whether a certificate is for one of the hosts that the configuration has routes to."""
    if certificate_der is None:
        return False
    return any(name.lower() in hosts for name in read_names(certificate_der).alternative)
