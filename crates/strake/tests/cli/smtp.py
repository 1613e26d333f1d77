"""An SMTP server for tests: TLS and a login are demanded, and what it does is said by a file.

Arguments: folder, then `starttls` or `tls`. The folder holds cert.pem and key.pem; the server writes
`port` there when it listens, and each mail as mail-N.eml. `mode` there says what becomes of a mail:
nothing (it is taken), 4xx, 5xx, hang, close. Addresses that begin with `gone` are refused for ever.
"""

import asyncio
import os
import pathlib
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

folder = pathlib.Path(sys.argv[1])
implicit = sys.argv[2] == "tls"
count = 0


def mode():
    try:
        return (folder / "mode").read_text().strip()
    except FileNotFoundError:
        return ""


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        global count
        match mode():
            case "4xx":
                return "451 4.3.0 come back later"
            case "5xx":
                return "554 5.7.1 not wanted"
            case "hang":
                await asyncio.sleep(3600)
            case "close":
                server.transport.abort()
                return "421 gone"
        count += 1
        to = ", ".join(envelope.rcpt_tos)
        head = f"X-Test-From: {envelope.mail_from}\r\nX-Test-To: {to}\r\n"
        new = folder / "mail.new"
        new.write_bytes(head.encode() + envelope.content)
        os.rename(new, folder / f"mail-{count}.eml")
        return "250 OK"


def login(server, session, envelope, mechanism, data):
    right = LoginPassword(b"strake", b"pa55 w\xc3\xb6rd")
    success = isinstance(data, LoginPassword) and data == right
    return AuthResult(success=success, handled=False)


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    tls = {} if implicit else {"tls_context": context, "require_starttls": True}

    def session():
        return SMTP(
            Handler(),
            hostname="localhost",
            authenticator=login,
            auth_required=True,
            auth_require_tls=not implicit,
            **tls,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        session, "127.0.0.1", 0, ssl=context if implicit else None
    )
    port = server.sockets[0].getsockname()[1]
    new = folder / "port.new"
    new.write_text(str(port))
    os.rename(new, folder / "port")
    await server.serve_forever()


asyncio.run(main())
