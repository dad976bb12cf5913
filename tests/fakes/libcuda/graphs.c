// Graphs: nodes with dependencies; an executable graph runs them in a random order that these
// allow, so that a forgotten edge shows.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define MAX_NODES 4096

typedef enum { NODE_EMPTY, NODE_KERNEL, NODE_COPY, NODE_FILL } NodeKind;

struct Node {
  CUgraph graph;
  NodeKind kind;
  int index;
  int dependency_count;
  int* dependencies;
  Launch launch;
  CUDA_MEMCPY3D copy;
  CUDA_MEMSET_NODE_PARAMS fill;
};

struct Graph {
  Handle handle;
  int count;
  CUgraphNode nodes[MAX_NODES];
};

struct Exec {
  Handle handle;
  CUgraph graph;
  int count;
  struct Node* nodes;
};

// --- building ----------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph* out_graph, unsigned int flags) {
  ENTER(cuGraphCreate);
  CURRENT(context);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out_graph = standin_create(KIND_GRAPH, sizeof(struct Graph), context);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  ENTER(cuGraphDestroy);
  CURRENT(context);
  CHECK(graph, KIND_GRAPH);
  standin_destroy(graph);
  return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode* out_node, CUgraph graph, const CUgraphNode* dependencies,
                         size_t count, NodeKind kind) {
  CHECK(graph, KIND_GRAPH);
  if (graph->count == MAX_NODES) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphNode node = calloc(1, sizeof(struct Node));
  node->graph = graph;
  node->kind = kind;
  node->index = graph->count;
  node->dependency_count = (int)count;
  node->dependencies = calloc(count + 1, sizeof(int));
  for (size_t i = 0; i < count; ++i) {
    if (dependencies[i]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    node->dependencies[i] = dependencies[i]->index;
  }
  graph->nodes[graph->count++] = node;
  *out_node = node;
  return CUDA_SUCCESS;
}

static CUresult check_copy(const CUDA_MEMCPY3D* p) {
  bool flat = p->Height == 1 && p->Depth == 1 && p->WidthInBytes > 0 && !p->reserved0 &&
              !p->reserved1 && p->srcXInBytes == 0 && p->dstXInBytes == 0;
  bool known = (p->srcMemoryType == 1 || p->srcMemoryType == 2) && p->dstMemoryType == 2;
  return flat && known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS* p) {
  bool sized = p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4;
  bool valid = sized && p->dst % p->elementSize == 0 && p->width > 0 && p->height > 0;
  valid = valid && (p->height == 1 || p->pitch >= p->width * p->elementSize);
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) {
  ENTER(cuGraphAddEmptyNode);
  CURRENT(context);
  return add_node(node, graph, dependencies, count, NODE_EMPTY);
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER(cuGraphAddKernelNode);
  CURRENT(context);
  Launch launch;
  CUresult result = standin_prepare_launch(&launch, params);
  if (result == CUDA_SUCCESS) result = add_node(node, graph, dependencies, count, NODE_KERNEL);
  if (result == CUDA_SUCCESS) (*node)->launch = launch;
  return result;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* params, CUcontext target) {
  ENTER(cuGraphAddMemcpyNode);
  CURRENT(context);
  CHECK(target, KIND_CONTEXT);
  CUresult result = check_copy(params);
  if (result == CUDA_SUCCESS) result = add_node(node, graph, dependencies, count, NODE_COPY);
  if (result == CUDA_SUCCESS) (*node)->copy = *params;
  return result;
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
                              CUcontext target) {
  ENTER(cuGraphAddMemsetNode);
  CURRENT(context);
  CHECK(target, KIND_CONTEXT);
  CUresult result = check_fill(params);
  if (result == CUDA_SUCCESS) result = add_node(node, graph, dependencies, count, NODE_FILL);
  if (result == CUDA_SUCCESS) (*node)->fill = *params;
  return result;
}

// --- executable graphs -------------------------------------------------------------------------

CUresult cuGraphInstantiate(CUgraphExec* out_exec, CUgraph graph, CUgraphNode* error_node,
                            char* log, size_t log_bytes) {
  ENTER(cuGraphInstantiate);
  CURRENT(context);
  CHECK(graph, KIND_GRAPH);
  (void)error_node;
  if (log && log_bytes) log[0] = 0;
  CUgraphExec exec = standin_create(KIND_EXEC, sizeof(struct Exec), context);
  exec->graph = graph;
  exec->count = graph->count;
  exec->nodes = calloc((size_t)graph->count + 1, sizeof(struct Node));
  for (int i = 0; i < graph->count; ++i) exec->nodes[i] = *graph->nodes[i];
  *out_exec = exec;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ENTER(cuGraphExecDestroy);
  CURRENT(context);
  CHECK(exec, KIND_EXEC);
  standin_destroy(exec);
  return CUDA_SUCCESS;
}

static struct Node* find_node(CUgraphExec exec, CUgraphNode node, NodeKind kind) {
  if (node == NULL || node->graph != exec->graph || node->index >= exec->count) return NULL;
  struct Node* found = &exec->nodes[node->index];
  return found->kind == kind ? found : NULL;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER(cuGraphExecKernelNodeSetParams);
  CURRENT(context);
  CHECK(exec, KIND_EXEC);
  struct Node* found = find_node(exec, node, NODE_KERNEL);
  if (found == NULL) return CUDA_ERROR_INVALID_VALUE;
  return standin_prepare_launch(&found->launch, params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* params, CUcontext target) {
  ENTER(cuGraphExecMemcpyNodeSetParams);
  CURRENT(context);
  CHECK(exec, KIND_EXEC);
  CHECK(target, KIND_CONTEXT);
  struct Node* found = find_node(exec, node, NODE_COPY);
  if (found == NULL || check_copy(params) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  if (found->copy.srcMemoryType != params->srcMemoryType) return CUDA_ERROR_INVALID_VALUE;
  found->copy = *params;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params,
                                        CUcontext target) {
  ENTER(cuGraphExecMemsetNodeSetParams);
  CURRENT(context);
  CHECK(exec, KIND_EXEC);
  CHECK(target, KIND_CONTEXT);
  struct Node* found = find_node(exec, node, NODE_FILL);
  if (found == NULL || check_fill(params) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  if (found->fill.height != 1 || params->height != 1) return CUDA_ERROR_INVALID_VALUE;
  found->fill = *params;
  return CUDA_SUCCESS;
}

// --- running -----------------------------------------------------------------------------------

typedef struct {
  Operation base;
  int count;
  struct Node nodes[];  // as they were at the launch: later updates do not reach it
} GraphOperation;

static CUresult run_copy(const CUDA_MEMCPY3D* copy) {
  if (copy->srcMemoryType == 2) {
    return standin_copy(copy->dstDevice, copy->srcDevice, copy->WidthInBytes);
  }
  void* to = standin_resolve(copy->dstDevice, copy->WidthInBytes, "copy: target");
  if (to == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memcpy(to, copy->srcHost, copy->WidthInBytes);
  return CUDA_SUCCESS;
}

static CUresult run_node(const struct Node* node, CUstream stream) {
  static const char* const names[] = {"empty", "kernel", "copy", "fill"};
  CUresult asked = standin_operation_error(names[node->kind]);
  if (asked != CUDA_SUCCESS) return asked;
  switch (node->kind) {
    case NODE_KERNEL:
      return standin_run_launch(&node->launch, stream, true);
    case NODE_COPY:
      return run_copy(&node->copy);
    case NODE_FILL:
      return standin_fill(&node->fill);
    default:
      return CUDA_SUCCESS;
  }
}

static bool is_ready(const struct Node* node, const bool* done) {
  for (int i = 0; i < node->dependency_count; ++i) {
    if (!done[node->dependencies[i]]) return false;
  }
  return true;
}

static int choose(const GraphOperation* graph, const bool* done) {
  LOCK();
  int start = (int)(standin_random() % (unsigned)graph->count);
  UNLOCK();
  for (int i = 0; i < graph->count; ++i) {
    int index = (start + i) % graph->count;
    if (!done[index] && is_ready(&graph->nodes[index], done)) return index;
  }
  return -1;
}

static CUresult run_graph(Operation* operation) {
  GraphOperation* graph = (GraphOperation*)operation;
  bool* done = calloc((size_t)graph->count + 1, sizeof(bool));
  CUresult result = CUDA_SUCCESS;
  for (int left = graph->count; left > 0 && result == CUDA_SUCCESS; --left) {
    int index = choose(graph, done);
    if (index < 0) {
      result = CUDA_ERROR_UNKNOWN;
      break;
    }
    result = run_node(&graph->nodes[index], operation->stream);
    done[index] = true;
  }
  free(done);
  return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTER(cuGraphLaunch);
  CURRENT(context);
  CHECK(exec, KIND_EXEC);
  CHECK(stream, KIND_STREAM);
  size_t bytes = (size_t)exec->count * sizeof(struct Node);
  GraphOperation* operation = calloc(1, sizeof(*operation) + bytes);
  operation->count = exec->count;
  memcpy(operation->nodes, exec->nodes, bytes);
  return standin_enqueue(stream, &operation->base, "graph", run_graph);
}
