/* bench/torch_speed.cpp: pairs of malloc and free of the allocator that PyTorch uses in this process, for torch_speed.py.
 * The cases, sizes and random numbers are those of `neap bench alloc` (src/bench/cases.c). */
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <thread>
#include <vector>

namespace
{

constexpr int runs = 7;
constexpr double run_ns = 20e6;
constexpr size_t drawn = 1 << 16;
constexpr size_t batch = 64;

/* The function that PyTorch's own allocator, and neap in its place, call for each allocation and free. The
 * simulator's runtime interposes it (sim/runtime/torch.c). */
constexpr const char *report_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
using report_function = decltype(&c10::reportMemoryUsageToProfiler);

enum kind { hit, batches, replacement, shapes };

struct worker {
	kind what;
	size_t bytes, live;
	cudaStream_t stream;
	std::vector<void *> blocks;
	std::vector<uint32_t> sizes, chosen;
	size_t at = 0;
	double used_ns = 0;
};

uint64_t next_random(uint64_t &state)
{
	uint64_t x = (state += 0x9e3779b97f4a7c15ull);
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint32_t random_size(uint64_t &state)
{
	double part = static_cast<double>(next_random(state) >> 11) / static_cast<double>(1ull << 53);
	return static_cast<uint32_t>(exp2(9 + part * 11));
}

void *take(const worker &worker, size_t bytes)
{
	return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, worker.stream);
}

void give(void *address) { c10::cuda::CUDACachingAllocator::raw_delete(address); }

void draw(worker &worker, unsigned number)
{
	uint64_t random = 1 + number;
	uint32_t shape[48];
	for (uint32_t &size : shape)
		size = random_size(random);
	for (size_t i = 0; i < drawn; i++) {
		worker.chosen.push_back(static_cast<uint32_t>(next_random(random) % worker.live));
		worker.sizes.push_back(worker.what == shapes ? shape[next_random(random) % 48] : random_size(random));
	}
	for (size_t i = 0; i < worker.live; i++)
		worker.blocks.push_back(take(worker, worker.bytes ? worker.bytes : worker.sizes[i % drawn]));
}

void replace(worker &worker)
{
	void *&block = worker.blocks[worker.chosen[worker.at % drawn]];
	give(block);
	block = take(worker, worker.sizes[worker.at++ * 7 % drawn]);
}

double now(clockid_t clock)
{
	timespec time;
	clock_gettime(clock, &time);
	return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

void run(worker &worker, size_t pairs)
{
	double began = now(CLOCK_THREAD_CPUTIME_ID);
	void *taken[batch];
	for (size_t i = 0; i < pairs; i++) {
		if (worker.what == replacement || worker.what == shapes)
			replace(worker);
		else if (worker.what == hit)
			give(take(worker, worker.bytes));
		else if (i % batch == 0) {
			for (void *&address : taken)
				address = take(worker, worker.bytes);
			std::for_each(taken, taken + batch, give);
		}
	}
	worker.used_ns = (now(CLOCK_THREAD_CPUTIME_ID) - began) / static_cast<double>(pairs);
}

double run_all(std::vector<worker> &workers, size_t pairs)
{
	std::vector<std::thread> threads;
	double most = 0;
	for (worker &worker : workers)
		threads.emplace_back(run, std::ref(worker), pairs);
	for (std::thread &thread : threads)
		thread.join();
	for (const worker &worker : workers)
		most = std::max(most, worker.used_ns);
	return most;
}

/* Nanoseconds of two reports: of an allocation and a free that never happened. */
double report_ns(report_function report)
{
	constexpr int pairs = 1 << 17;
	double best = 1e9;
	for (int run = 0; run < runs; run++) {
		double began = now(CLOCK_THREAD_CPUTIME_ID);
		for (int i = 0; i < pairs; i++) {
			report(&best, 512, 512, 512, c10::Device(c10::kCUDA, 0));
			report(&best, -512, 0, 512, c10::Device(c10::kCUDA, 0));
		}
		best = std::min(best, (now(CLOCK_THREAD_CPUTIME_ID) - began) / pairs);
	}
	return best;
}

} // namespace

/* Nanoseconds of processor time per pair: the median of the runs, the fastest and the slowest. Then, in
 * the process as the runs left it, an empty pair: the two reports alone, as they are called, and libc10's own. */
extern "C" __attribute__((visibility("default"))) void torch_speed(int what, size_t bytes, size_t live,
								   unsigned threads, double *ret_figures)
{
	std::vector<worker> workers(threads);
	double figures[runs];
	for (unsigned i = 0; i < threads; i++) {
		workers[i].what = static_cast<kind>(what);
		workers[i].bytes = bytes;
		workers[i].live = live;
		workers[i].stream = i ? c10::cuda::getStreamFromPool().stream() : nullptr;
		draw(workers[i], i);
	}
	run_all(workers, bytes ? 4096 : 5 * live);
	double guess = run_all(workers, 4096);
	size_t pairs = std::max<size_t>(static_cast<size_t>(run_ns / guess) / batch * batch, batch);
	for (double &figure : figures)
		figure = run_all(workers, pairs);
	std::sort(figures, figures + runs);
	ret_figures[0] = figures[runs / 2];
	ret_figures[1] = figures[0];
	ret_figures[2] = figures[runs - 1];
	ret_figures[3] = report_ns(c10::reportMemoryUsageToProfiler);
	void *own = dlsym(dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD), report_name);
	ret_figures[4] = report_ns(reinterpret_cast<report_function>(own));
	for (worker &worker : workers)
		std::for_each(worker.blocks.begin(), worker.blocks.end(), give);
}
