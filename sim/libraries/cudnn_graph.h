/* sim/libraries/cudnn_graph.h: typed access to descriptors' contents, for cudnn_graph.c, cudnn_operations.c and
 * cudnn_execute.c.
 *
 *   variant pack          execution plan --> engine configuration --> engine --> operation graph --> operations
 *   unique id -> address     `--------------------- cudnnBackendExecute -------------------'         --> tensors
 */
#ifndef NEAP_RUNTIME_LIBRARIES_CUDNN_GRAPH_H
#define NEAP_RUNTIME_LIBRARIES_CUDNN_GRAPH_H

#include "sim/libraries/cudnn_backend.h"

/* An attribute of int64_t. NULL and 0: it is not set. */
const int64_t *cudnn_graph_numbers(const struct cudnn_contents *contents, int name, int64_t *ret_count);
/* An attribute that is an enumerator of this type; -1: it is not set. */
int cudnn_graph_enumerator(const struct cudnn_contents *contents, int name, int type);
/* A boolean attribute; false if it is not set. */
bool cudnn_graph_flag(const struct cudnn_contents *contents, int name);

/* Of finalized tensors. */
int64_t cudnn_graph_tensor_id(const struct cudnn_contents *tensor);
/* Bits of an element. */
int cudnn_graph_tensor_bits(const struct cudnn_contents *tensor);

/* Calls `visit` for each tensor of a graph, with the name of the attribute that holds it: the operation's, or the
 * tensor's (offsets of a ragged one). Stops at an error status, and returns it. */
typedef int (*cudnn_graph_visitor)(const struct cudnn_contents *tensor, int name, void *context);
int cudnn_graph_visit(const struct cudnn_contents *graph, cudnn_graph_visitor visit, void *context);

/* The graph of a finalized plan or engine configuration. */
const struct cudnn_contents *cudnn_graph_of(const struct cudnn_contents *contents);

/* Counts the workspace of a plan, from what it usually is to the most that is known, and returns the usual bytes. */
uint64_t cudnn_execute_count_workspace(const struct cudnn_contents *plan);
/* The workspace of a finalized plan. */
uint64_t cudnn_graph_workspace(const struct cudnn_contents *plan);

/* Checks a tensor, a description of an operation or an operation. Returns a status. */
int cudnn_operation_check(const struct cudnn_contents *contents);
bool cudnn_operation_is(int type);

#endif
