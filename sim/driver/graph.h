/* sim/driver/graph.h: graphs, captures and the operations of their nodes, for capture.c, graph.c, graph_exec.c,
 * work.c.
 *
 *   capture --(graph)--> graph: nodes in the order they were added, each after its dependencies
 *      |                   |
 *   streams              node --(shared)--> operation: the work of a launch
 *
 * An instantiated or cloned graph shares the operations. sim.lock guards everything but reference counts.
 */
#ifndef NEAP_SIM_GRAPH_H
#define NEAP_SIM_GRAPH_H

#include "sim/driver/state.h"

/* The work that a node does at each launch of its graph. It never changes, and is freed with its last reference. */
struct sim_operation {
	atomic_uint references;
	char *name;        /* its own copy */
	const char *label; /* static text that describes it, if it touches memory or has a function */
	uint64_t duration_ns;
	void (*function)(void *argument); /* NULL: none */
	void *argument;
	void *staged; /* freed with it */
	bool strict;
	size_t range_count;
	struct neap_sim_range ranges[];
};

/* Copies the task; takes over `staged`, also on failure (NULL: host out of memory). */
struct sim_operation *sim_operation_create(const struct sim_task *task);
void sim_operation_release(struct sim_operation *operation); /* NULL is fine */

struct CUgraphNode_st {
	CUgraph graph;
	CUgraphNodeType type;
	size_t index;                    /* in its graph */
	struct sim_operation *operation; /* NULL: the node does nothing */
	CUgraph child;                   /* GRAPH */
	CUevent event;                   /* EVENT_RECORD, WAIT_EVENT: external ones */
	size_t dependency_count;
	CUgraphNode dependencies[]; /* each before it in the graph */
};

struct sim_hold { /* references to a user object */
	struct sim_hold *next;
	CUuserObject object;
	unsigned int count;
};

struct race_recording;

struct CUgraph_st {
	uint64_t id;
	struct race_recording *uses; /* the memory that the captured work uses; NULL: not known */
	struct sim_nodes nodes;
	struct sim_capture *capture; /* the capture that records into this graph */
	struct sim_hold *holds;
};

/* -- graphs, lock held ------------------------------------------------------------------------------------------- */

CUgraph sim_graph_create(void); /* NULL: host out of memory. For the program */
/* Frees the graph. Puts its references to user objects on `holds`; the caller releases them with sim_holds_release,
 * without the lock. */
void sim_graph_free(CUgraph graph, struct sim_hold **holds);
bool sim_graph_known(CUgraph graph);
/* Takes over `operation`, also on failure (NULL: host out of memory). */
CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_operation *operation,
			  const CUgraphNode *dependencies, size_t count);
/* Returns a copy whose handle the program does not get: for an executable graph, or as a child of another graph. */
CUgraph sim_graph_copy(CUgraph graph);
/* Whether each of the nodes is in the graph. */
bool sim_graph_owns(CUgraph graph, const CUgraphNode *nodes, size_t count);

/* Adds the nodes that are not in it yet. False: host out of memory. */
bool sim_nodes_add(struct sim_nodes *nodes, const CUgraphNode *more, size_t count);
void sim_nodes_fini(struct sim_nodes *nodes);

/* Takes this many more references. Lock held. False: host out of memory. */
bool sim_holds_add(struct sim_hold **holds, CUuserObject object, unsigned int count);
/* Drops the list without running destructors, because other references remain or the driver's state is discarded.
 * Lock held.
 */
void sim_holds_forget(struct sim_hold *holds);
/* Called without a lock, because destructors run. */
void sim_holds_release(struct sim_hold *holds);
/* Lock held. */
void sim_executables_drop(CUcontext context, struct sim_hold **holds);

/* -- captures, lock held ----------------------------------------------------------------------------------------- */

struct sim_capture {
	struct sim_capture *next; /* of sim.captures */
	uint64_t id;
	CUstream origin;
	CUstream streams; /* all captured streams, by CUstream_st.next_captured */
	CUgraph graph;
	bool given;            /* the program gave the graph: cuStreamBeginCaptureToGraph */
	struct sim_nodes lost; /* the last nodes of streams that were destroyed during the capture */
	CUstreamCaptureMode mode;
	uint64_t thread; /* the thread that began it */
	bool invalidated;
};

/* The running capture with this id, or NULL. */
struct sim_capture *sim_capture_find(uint64_t id);
/* Adds a node after the stream's last one. Takes over `operation`, also on failure. */
CUresult sim_capture_add(CUstream stream, CUgraphNodeType type, struct sim_operation *operation,
			 CUgraphNode *ret_node);
/* Adds the stream to the capture; its next node comes after `nodes` too. */
CUresult sim_capture_join(struct sim_capture *capture, CUstream stream, const struct sim_nodes *nodes);
/* Removes a stream that is being destroyed. */
void sim_capture_leave(CUstream stream, struct sim_hold **holds);

#endif
