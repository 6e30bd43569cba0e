/* store/result_fields.h: the fields of a run's result, once. The struct, result.json, the history and what `neap
 * history` shows, compares and exports follow from it. No include guard: include it with X defined.
 *
 *   X(KIND, name, label)
 *
 *   KIND    TEXT; whole numbers: BYTES, NS, WALL (time since 1970 in ns), COUNT, SMALL (32 bits), STATUS (0 to 255);
 *           NUMBER, SHARE (0 to 1), LOSS (NAN: unknown, null in JSON); BOOL; OUTCOME
 *   name    the member, and the key in JSON
 *   label   in `neap history`; "": not among its figures
 *
 * result.json and `neap history` have the fields in this order.
 */
X(TEXT, run_id, "")
X(TEXT, name, "name")             /* experiment or program */
X(TEXT, command, "command")       /* as typed, one line */
X(TEXT, parameters, "parameters") /* "micro_batch=32 accumulate=1", of the last attempt */
X(OUTCOME, outcome, "outcome")
X(TEXT, evidence, "evidence")         /* the reason for the outcome: one line */
X(STATUS, exit_status, "exit status") /* 0..255, or 128 + signal */
/* For a command that did not end well, if its output could be read: */
X(TEXT, error_line, "error")        /* its exception, else its last line; "" */
X(TEXT, last_lines, "")             /* its last lines, at most 16; "" */
X(TEXT, last_lines_of, "")          /* "stderr" or "stdout and stderr"; "" nothing could be read */
X(TEXT, folder, "folder")           /* the run's, absolute; "" unknown */
X(WALL, started_wall_ns, "started") /* these three: of the command, all retries included */
X(WALL, ended_wall_ns, "ended")
X(NS, duration_ns, "took")
X(TEXT, device_name, "device")
X(TEXT, device_uuid, "uuid")
X(TEXT, backend, "backend") /* "cuda" or "sim" */
X(BYTES, device_total_bytes, "device memory")
X(BOOL, attached, "")                            /* a process of the run was attached */
X(BYTES, peak_allocated_bytes, "peak allocated") /* of attached processes, exact; 0 when none */
X(BYTES, peak_reserved_bytes, "peak reserved")
/* Highest sample of the driver's figure, or the reserved peak plus a context if no sample saw it; 0 unknown. */
X(BYTES, peak_device_bytes, "peak on device")
X(BYTES, headroom_bytes, "headroom") /* device total - driver reserved - highest use seen, others included */
X(NS, waited_ns, "waited")           /* for the bytes it needs, before the start */
X(NS, drain_ns, "drain")             /* from its last process's end until its memory was free */
X(BOOL, drained, "")                 /* false: gave up waiting; `drain_note` names what still held memory */
X(TEXT, drain_note, "")
X(SMALL, ooms, "OOMs")       /* inside the process and by restarts together; rungs too */
X(SMALL, retries, "retries") /* restarts of the command after an OOM */
X(SMALL, rungs, "rungs")
/* "micro_batch 64 -> 16, accumulate 1 -> 4, mixed precision": splits taken, and the other rungs in force at the end,
 * taken or set; "" none */
X(TEXT, rung, "rung")
X(SMALL, restarts, "restarts")       /* how often the process restarted in place */
X(COUNT, micro_batch, "micro-batch") /* in force at the end, as accumulate; 0: unknown, no session */
X(COUNT, accumulate, "accumulation")
X(COUNT, batch, "batch") /* samples of an update on one rank: at most micro_batch x accumulate; 0: unknown */
X(COUNT, steps, "steps")
X(TEXT, steps_are, "") /* what its steps are, if not optimizer updates: NEAP_STEP_BATCH, NEAP_STEP_FORWARD */
X(LOSS, last_loss, "last loss")
X(TEXT, leak_verdict, "leak") /* "clean", "leak", "too short", "not watched" */
X(NUMBER, leak_bytes_per_step, "")
X(SHARE, leak_confidence, "")
/* The step at which the session last predicted memory to end, with its interval; 0: none. */
X(COUNT, memory_ends_step, "")
X(COUNT, memory_ends_low_step, "")
X(COUNT, memory_ends_high_step, "")
X(TEXT, fluctuation, "fluctuation") /* one line: amplitude, cause; "" unknown */
X(TEXT, savings, "savings")         /* one line: the bytes that rungs would have saved at the peak; "" none */
X(TEXT, cleanup, "cleanup")         /* one line: count, bytes given back, cost; "" none */
/* Upward advice: the largest micro-batch that is predicted to fit. */
X(TEXT, advice, "advice")            /* one line, for people; also why there is none; "" when nothing was recorded */
X(COUNT, advised_micro_batch, "")    /* 0: none */
X(BYTES, advised_headroom_bytes, "") /* with that micro-batch */
X(BYTES, advised_uncertainty_bytes, "") /* to either side */
X(COUNT, kept_micro_batch, "")          /* the largest that keeps the batch */
X(COUNT, kept_accumulate, "")
X(BYTES, kept_headroom_bytes, "")
X(TEXT, stray_contexts, "stray contexts") /* one line: contexts on devices that their process did not use; "" none */
X(TEXT, not_attached, "not attached")     /* one line: processes that used a device unattached, and why; "" none */
X(TEXT, containment, "contained by") /* one line: how the run's processes are identified; "" nothing was started */
X(TEXT, simulated, "") /* one line: neap's stand-ins were used, with the parts not modelled; "" unused */
X(TEXT, oom_card, "")  /* text of the last card; "" when there was no OOM */
