"""Uses a client that openapi-python-client made from the daemon's document.

Arguments: the folder of the generated package, the daemon's socket, two files for members.
Prints what it did; any answer that is not what the document says ends it with an error.
"""

import sys
import time

folder, socket, *devices = sys.argv[1:]
sys.path.insert(0, folder)

import httpx
from strake_client import Client
from strake_client.api.arrays import delete_array, get_array, get_arrays
from strake_client.api.arrays import post_array_scrub, post_array_stop, post_arrays
from strake_client.api.daemon import get_version
from strake_client.models import Created, CreateRequest, Error, JobRequest, Outcome

transport = httpx.HTTPTransport(uds=socket)
client = Client(base_url="http://strake", httpx_args={"transport": transport})

version = get_version.sync(client=client)
print("daemon", version.version)

# Bad input is an object with a code, what was found, and a cure.
wrong = CreateRequest(name="data", level="99", devices=devices)
answer = post_arrays.sync_detailed(client=client, body=wrong)
assert answer.status_code == 400, answer
assert isinstance(answer.parsed, Error), answer.parsed
assert answer.parsed.code == "level-unknown", answer.parsed
assert "99" in answer.parsed.found and answer.parsed.cure, answer.parsed
print("refused", answer.parsed.code)

asked = CreateRequest(name="data", level="1", export="none", devices=devices)
answer = post_arrays.sync_detailed(client=client, body=asked)
assert answer.status_code == 201, answer
assert isinstance(answer.parsed, Created), answer.parsed
assert answer.parsed.level == "1", answer.parsed

arrays = get_arrays.sync(client=client)
assert [array.name for array in arrays] == ["data"], arrays
assert [member.state for member in arrays[0].members] == ["in_sync"] * 2, arrays
assert arrays[0].device is None, arrays
print("made", arrays[0].name)

scrub = JobRequest(action="start")
outcome = post_array_scrub.sync("data", client=client, body=scrub)
assert isinstance(outcome, Outcome) and outcome.changed, outcome
give_up = time.monotonic() + 120
while (array := get_array.sync("data", client=client)).last_scrub is None:
    assert time.monotonic() < give_up, array
    time.sleep(0.05)
assert array.last_scrub.inconsistent_stripes == 0, array.last_scrub
print("scrubbed", array.name)

for act in (post_array_stop, delete_array):
    outcome = act.sync("data", client=client)
    assert isinstance(outcome, Outcome) and outcome.changed, outcome
assert get_arrays.sync(client=client) == []
gone = get_array.sync("data", client=client)
assert isinstance(gone, Error) and gone.code == "array-not-found", gone
print("deleted data")
