/* torch/values_script.cpp: values of the kernels that TorchScript compiles. A part of values.cpp.
 *
 * From a function's third call on TorchScript replaces element-wise operations on a device by one kernel
 * (prim::TensorExprGroup). It never comes to the dispatcher.
 *
 *   a group   1. its kernel, blind: it allocates the results, and launches what does nothing
 *             2. the operations that it replaces, on CPU tensors over the same bytes; stored into the results of 1
 */
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace neap_torch
{

namespace
{

struct Group {
	Group(const torch::jit::Node *node, const torch::jit::Operator &real)
	    : operations(node->g(c10::attr::Subgraph)->copy(), "neap"), kernel(real.getOperation(node)),
	      inputs(node->inputs().size())
	{
	}

	torch::jit::Code operations; /* of a copy: the kernel changes its graph */
	torch::jit::Operation kernel;
	size_t inputs;
	Plan plan{}; /* for `note_unknown` */
};

std::shared_ptr<torch::jit::Operator> real_group;

const char *const kGroup = "prim::TensorExprGroup";

/* `hosts`, `results`: CPU tensors over the arguments' and the results' bytes. */
void compute_operations(const Group &group, Stack hosts, const Stack &results, Plan &noted)
{
	Below guard;

	try {
		torch::jit::InterpreterState(group.operations).run(hosts);
		for (size_t i = 0; i < results.size(); i++)
			(void)store_value(results[i], hosts[i]);
	} catch (const std::exception &error) {
		note_unknown(kGroup, noted, error.what());
		for (const IValue &result : results)
			mark(result, State::Missing);
	}
}

void compute_group(const std::shared_ptr<Group> &group, Stack *stack)
{
	size_t begin = stack->size() - group->inputs;
	Stack arguments(stack->begin() + (ptrdiff_t)begin, stack->end()), hosts, results;
	Both both;

	if (!simulator.load() || std::none_of(arguments.begin(), arguments.end(), is_on_device)) {
		group->kernel(*stack);
		return;
	}
	RacesTouches read, written;

	for (const IValue &value : arguments) {
		hosts.push_back(host_value(value));
		gather(hosts.back(), &both.read);
		races_gather(value, NEAP_SIM_READS, &read);
	}
	races_work(kGroup, read);
	{
		Blind blind;

		group->kernel(*stack);
	}
	late_settle(arguments);
	for (size_t i = begin; i < stack->size(); i++) {
		results.push_back(host_value((*stack)[i]));
		gather(results.back(), &both.written);
		races_gather((*stack)[i], NEAP_SIM_WRITES, &written);
	}
	races_work(kGroup, written);
	auto compute = [group, hosts, results] { compute_operations(*group, hosts, results, group->plan); };

	if (is_capturing())
		add_captured(Captured{c10::nullopt, nullptr, c10::Device(at::kCUDA, 0), {}, {}, both, compute});
	else if (worth(kGroup, [&] { return both; }))
		compute();
}

torch::jit::Operation make_group(const torch::jit::Node *node)
{
	auto group = std::make_shared<Group>(node, *real_group);

	return [group](Stack &stack) { compute_group(group, &stack); };
}

} // namespace

/* To be called once, before TorchScript has optimized anything. */
void script_watch()
{
	c10::Symbol kind = c10::Symbol::fromQualString(kGroup);
	auto all = torch::jit::getAllOperatorsFor(kind);

	if (all.size() != 1)
		return;
	real_group = all[0];
	torch::jit::deregisterOperator(real_group->schema());
	torch::jit::registerOperator(
		torch::jit::Operator(kind, make_group, c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE));
}

} // namespace neap_torch
