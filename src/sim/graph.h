/* sim/graph.h: graphs, captures and what their nodes do, for capture.c, graph.c, graph_exec.c, work.c.
 *
 *   capture --(graph)--> graph: nodes in the order they were added, which no edge contradicts
 *      |                   |
 *   streams              node --(shared)--> operation: what is done at a launch
 *
 * A graph that is instantiated or cloned shares the operations. Everything: sim.lock, but for reference counts.
 */
#ifndef NEAP_SIM_GRAPH_H
#define NEAP_SIM_GRAPH_H

#include "sim/state.h"

/* What a node does when its graph is launched. Never changes; freed with its last reference. */
struct sim_operation {
	atomic_uint references;
	char *name;        /* its own copy */
	const char *label; /* static text, where it touches memory or has a function */
	uint64_t duration_ns;
	void (*function)(void *argument); /* NULL: none */
	void *argument;
	void *staged; /* freed with it */
	bool strict;
	size_t range_count;
	struct neap_sim_range ranges[];
};

/* A copy of the task; takes over `staged`, also on failure (NULL: host out of memory). */
struct sim_operation *sim_operation_create(const struct sim_task *task);
void sim_operation_release(struct sim_operation *operation); /* NULL is fine */

struct CUgraphNode_st {
	CUgraph graph;
	CUgraphNodeType type;
	size_t index;                    /* in its graph */
	struct sim_operation *operation; /* NULL: nothing is done */
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

struct CUgraph_st {
	uint64_t id;
	struct sim_nodes nodes;
	struct sim_capture *capture; /* under way into this graph */
	struct sim_hold *holds;
};

/* -- graphs, lock held ---------------------------------------------------------------------------------------------
 */

CUgraph sim_graph_create(void); /* NULL: host out of memory. The program may name it */
/* Its references to user objects are put on `holds`, for sim_holds_release without the lock. */
void sim_graph_free(CUgraph graph, struct sim_hold **holds);
bool sim_graph_known(CUgraph graph);
/* NULL: host out of memory. `operation` is taken over, also then. */
CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_operation *operation,
			  const CUgraphNode *dependencies, size_t count);
/* A graph of its own that the program cannot name: for a launchable graph, and inside of others. */
CUgraph sim_graph_copy(CUgraph graph);
/* True if each is a node of the graph. */
bool sim_graph_owns(CUgraph graph, const CUgraphNode *nodes, size_t count);

/* Adds what is not in it yet. False: host out of memory. */
bool sim_nodes_add(struct sim_nodes *nodes, const CUgraphNode *more, size_t count);
void sim_nodes_fini(struct sim_nodes *nodes);

/* Takes so many more references. Lock held. False: host out of memory. */
bool sim_holds_add(struct sim_hold **holds, CUuserObject object, unsigned int count);
/* Lock held: other references are left, or nobody is to be told. */
void sim_holds_forget(struct sim_hold *holds);
/* No lock held: destructors run. */
void sim_holds_release(struct sim_hold *holds);
/* Lock held. */
void sim_executables_drop(uint32_t device, struct sim_hold **holds);

/* -- captures, lock held -------------------------------------------------------------------------------------------
 */

struct sim_capture {
	struct sim_capture *next; /* of sim.captures */
	uint64_t id;
	CUstream origin;
	CUstream streams; /* all that take part, by CUstream_st.next_captured */
	CUgraph graph;
	bool given;            /* the graph is the program's: cuStreamBeginCaptureToGraph */
	struct sim_nodes lost; /* where streams were that are destroyed */
	CUstreamCaptureMode mode;
	uint64_t thread; /* that began it */
	bool invalidated;
};

/* The capture under way with this id, or NULL. */
struct sim_capture *sim_capture_find(uint64_t id);
/* Adds a node behind what the stream did last. `operation` is taken over, also on failure. */
CUresult sim_capture_add(CUstream stream, CUgraphNodeType type, struct sim_operation *operation,
			 CUgraphNode *ret_node);
/* The stream takes part from now on, and its next node comes after these too. */
CUresult sim_capture_join(struct sim_capture *capture, CUstream stream, const struct sim_nodes *nodes);
/* A stream that goes away. */
void sim_capture_leave(CUstream stream, struct sim_hold **holds);

#endif
