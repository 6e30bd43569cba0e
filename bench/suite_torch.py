"""Tests of PyTorch's operators, modules and optimizers on a device, from the databases that its wheel has:

    pytest --neap-gpu=h100-80gb,mem=6GiB bench/suite_torch.py

Needs expecttest, as the databases do. Classes and tests have the names under which PyTorch's databases list what it
skips itself.
"""

import copy

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase, freeze_rng_state
from torch.utils._pytree import tree_map_only


def on_host(values):
    return tree_map_only(torch.Tensor, lambda t: t.detach().cpu().requires_grad_(t.requires_grad), values)


def first_tensor(output):
    return output if isinstance(output, torch.Tensor) else next((first_tensor(part) for part in output if part is not None), None)


class TestModule(TestCase):
    @modules(module_db)
    def test_cpu_gpu_parity(self, device, dtype, module_info, training):
        for case in module_info.module_inputs_func(module_info, device=device, dtype=dtype, requires_grad=True, training=training):
            if case.forward_input is None:
                continue
            module = module_info.module_cls(*case.constructor_input.args, **case.constructor_input.kwargs).to(device).to(dtype)
            module.train(training)
            arguments = case.forward_input.args
            named = case.forward_input.kwargs
            if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
                module(*arguments, **named)
            host = copy.deepcopy(module).cpu()
            with freeze_rng_state():
                output = module(*arguments, **named)
            with freeze_rng_state():
                expected = host(*on_host(arguments), **on_host(named))
            self.assertEqual(on_host(output), expected, exact_device=False)
            total = first_tensor(output)
            if not total.requires_grad or total.is_complex() or (isinstance(module, torch.nn.RNNBase) and not training):
                continue  # cuDNN has no backward pass of recurrent networks in evaluation
            total.sum().backward()
            first_tensor(expected).sum().backward()
            for ours, theirs in zip(module.parameters(), host.parameters()):
                self.assertEqual(on_host(ours.grad), theirs.grad, exact_device=False)


class TestOptim(TestCase):
    @optims(optim_db, dtypes=[torch.float32])
    def test_three_steps(self, device, dtype, optim_info):
        if optim_info.optim_cls.__name__ == "LBFGS" or optim_info.only_supports_sparse_grads:
            return
        for case in optim_info.optim_inputs_func(device=device):
            if any(isinstance(value, torch.Tensor) for value in case.kwargs.values()):
                continue
            options = {name: value for name, value in case.kwargs.items() if name not in ("fused", "capturable", "foreach")}
            model = torch.nn.Linear(6, 6).to(device)
            host = copy.deepcopy(model).cpu()
            least = 2 if optim_info.optim_cls.__name__ == "Muon" else 0
            parameters = [[p for p in each.parameters() if p.dim() >= least] for each in (model, host)]
            for way in ({}, *({name: True} for name in ("foreach", "fused") if name in optim_info.supported_impls)):
                makers = [optim_info.optim_cls(parameters[0], **options, **way), optim_info.optim_cls(parameters[1], **options)]
                sample = torch.randn(4, 6)
                for _ in range(3):
                    for each, optimizer, batch in zip((model, host), makers, (sample.to(device), sample)):
                        optimizer.zero_grad()
                        each(batch).square().sum().backward()
                        optimizer.step()
                self.assertEqual(on_host(parameters[0]), parameters[1], exact_device=False)


class TestCommon(TestCase):
    @ops(op_db, allowed_dtypes=(torch.float32, torch.long, torch.complex64))
    def test_noncontiguous_samples(self, device, dtype, op):
        for case in op.sample_inputs(device, dtype):
            strided = case.noncontiguous()
            output = op(case.input, *case.args, **case.kwargs)
            self.assertEqual(output, op(strided.input, *strided.args, **strided.kwargs))

    @ops(op_db, dtypes=OpDTypes.any_common_cpu_cuda_one)
    def test_compare_cpu(self, device, dtype, op):
        for case in op.reference_inputs(device, dtype):
            host = case.transform(on_host)
            if "device" in host.kwargs:
                host.kwargs["device"] = "cpu"
            output = op(case.input, *case.args, **case.kwargs)
            self.assertEqual(on_host(output), op(host.input, *host.args, **host.kwargs), atol=1e-4, rtol=1e-4, exact_device=False)

    @ops([op for op in op_db if op.error_inputs_func is not None], dtypes=OpDTypes.none)
    def test_errors(self, device, op):
        for case in op.error_inputs(device):
            sample = case.sample_input
            with self.assertRaisesRegex(case.error_type, case.error_regex):
                op(sample.input, *sample.args, **sample.kwargs)


for group in (TestModule, TestOptim, TestCommon):
    instantiate_device_type_tests(group, globals(), only_for="cuda")
