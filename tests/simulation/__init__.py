"""A hub and a job in one process, on a disk, a clock and a network that fail as a seed says.

Deterministic simulation testing, after FoundationDB and TigerBeetle's VOPR
(https://github.com/tigerbeetle/tigerbeetle/blob/main/docs/internals/vopr.md): everything that could differ from run to
run is drawn from one seed, so a seed that fails replays, step by step. The code under test is the real one, from
`Namespace` to the job's journal; only what lies below it is simulated.

| zone | what fails there |
|---|---|
| disk | a write is cut short or refused, a sync fails, a power failure loses or tears what was not synced |
| clock | the machine's clock jumps ahead, stands still, or has been set back when the hub starts again |
| network | a publication or its acknowledgement is lost, so the publisher sends again; the job cannot reach the hub |
| process | the hub or the job dies at any file operation and is started again, the job with other step sizes |

What must hold, whatever fails:

1. An acknowledged event is in the log for ever, where it was first seen, with the same bytes and time.
2. An idempotent producer's events are there once each, in order.
3. No event arrives before a lower bound that was given for it.
4. The job's outputs hold, byte for byte, what one undisturbed run over the final log gives.

    python -m tests.simulation --runs 1000        as many worlds; --seed N replays one and prints what happened
"""
