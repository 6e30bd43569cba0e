/* cli/commands.h: the commands, once, in the order of `neap help`. No include guard: include it with X defined.
 *
 *   X(NAME)     NAME's file defines `const struct neap_command neap_command_NAME`
 */
X(estimate)
X(run)
X(series)
X(info)
X(top)
X(serve)
X(clear)
X(reset)
X(fraction)
X(enable)
X(kill)
X(explain)
X(checkpoints)
X(history)
X(analyze)
X(compare)
X(replay)
X(bench)
X(sim)
X(help)
