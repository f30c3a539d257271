"""Binary bodies as they are generated: any bytes."""

import schemathesis


@schemathesis.serializer(
    "application/vnd.eigenveil.report",
    "application/vnd.eigenveil.report-batch",
    "application/vnd.eigenveil.enrolled-report",
    "application/vnd.eigenveil.enrolled-report-batch",
    "application/vnd.eigenveil.study-export",
)
def binary(context, value):
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogatepass")
