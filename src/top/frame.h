/* top/frame.h: one screen of `neap top`, made from the samples and the view alone. Pure, one thread.
 *
 *   neap top  05:51:23, every 1 s      1 GPU (simulated), 1 process       host: 14.1 GiB available
 *   0 NAME                                                    36.0 MiB of 96.0 MiB used  37 % busy
 *     ##===============ccccccc......................................................r    the bar
 *   # allocated 1.73 MiB   = cached 24.3 MiB   c context 8.00 MiB   ...                  the legend, of GPU 0
 *   GPU 0, the last 5 min, 36.0 MiB at most                                              the curve, of GPU 0
 *   ...
 *       PID USER     GPU     TIME ...   COMMAND                                          the processes
 *   the selected process in one line, or a message
 *   the keys, a question, or what is typed
 *
 * When rows are short, parts give way in this order: the curve, the bars' own lines, the legend, devices beyond those
 * that fit ("and 8 more GPUs").
 */
#ifndef NEAP_TOP_FRAME_H
#define NEAP_TOP_FRAME_H

#include "top/grid.h"
#include "top/view.h"

/* Draws a frame of view->width x view->height; with view->once it is as high as its contents. The caller calls
 * neap_top_grid_fini. Errors: NEAP_ENOMEM, NEAP_EINVAL. */
enum neap_status neap_top_frame_make(const struct neap_top_history *history, const struct neap_top_view *view,
				     struct neap_top_grid *ret_grid, struct neap_error *err);

#endif
