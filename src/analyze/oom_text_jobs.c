/* analyze/oom_text_jobs.c: messages of vLLM, whose log has the figures before the message, and of Slurm, about a job
 * that exceeded its host memory limit. */
#include "analyze/oom_text_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of the last `phrase` of the text, behind what may stand between it and a figure: "takes 1.0", "(1.0",
 * "=1.0", ": -1.0". NULL: there is none. */
static const char *behind_last(const char *text, size_t length, const char *phrase)
{
	const char *end = text + length, *found = NULL, *at = text;
	size_t size = strlen(phrase);
	while (at < end && (at = memmem(at, (size_t)(end - at), phrase, size)))
		found = at += size;
	if (found && end - found > 6 && strncmp(found, " takes", 6) == 0)
		found += 6;
	while (found && found < end && strchr(" (=:", *found) && *found)
		found++;
	return found;
}

/* The figure behind the last `phrase`; *ret_below: whether it is below zero. */
static struct figure last_figure(const char *text, size_t length, const char *phrase, bool *ret_below)
{
	char number[32] = "";
	struct figure figure;
	const char *at = behind_last(text, length, phrase);
	if (!at)
		return unknown;
	bool below = at < text + length && *at == '-';
	at += below;
	size_t rest = (size_t)(text + length - at);
	memcpy(number, at, rest < sizeof number - 1 ? rest : sizeof number - 1);
	if (!neap_oom_figure_read(number, &figure))
		return unknown;
	if (ret_below)
		*ret_below = below;
	else if (below)
		return unknown;
	return figure;
}

/* Reads the figures in the log before the message. */
static void read_vllm(const char *text, size_t length, struct neap_oom_text *found)
{
	bool below = false;
	const char *share = behind_last(text, length, "gpu_memory_utilization");
	struct figure left = either(last_figure(text, length, "Available KV cache memory", &below),
				    last_figure(text, length, "memory reserved for KV Cache is", &below));
	take(found, &found->total_bytes, last_figure(text, length, "total_gpu_memory", NULL));
	take(found, &found->weights_bytes,
	     either(last_figure(text, length, "odel weights take", NULL),
		    either(last_figure(text, length, "Model loading took", NULL),
			   last_figure(text, length, "odel weights took", NULL))));
	take(found, &found->outside_bytes, last_figure(text, length, "non_torch_memory", NULL));
	take(found, &found->activation_bytes, last_figure(text, length, "activation peak memory", NULL));
	if (share) {
		char number[16] = "";
		size_t rest = (size_t)(text + length - share);
		memcpy(number, share, rest < sizeof number - 1 ? rest : sizeof number - 1);
		double value = isdigit((unsigned char)number[0]) || number[0] == '.' ? strtod(number, NULL) : 0;
		found->utilization = value > 0 && value <= 1 ? value : 0;
	}
	if (below && known(left.bytes))
		take(found, &found->shortfall_bytes, left);
}

/* vLLM has nothing left for the cache: was its share of the device too small, or the device? */
static void decide_vllm(struct neap_oom_text *found)
{
	uint64_t total = found->total_bytes;
	if (!known(total) || total == 0)
		return;
	if (found->utilization > 0)
		found->allowed_bytes = (uint64_t)(found->utilization * (double)total);
	uint64_t needed = NEAP_OOM_TEXT_UNKNOWN;
	if (known(found->weights_bytes) && known(found->outside_bytes) && known(found->activation_bytes))
		needed = found->weights_bytes + found->outside_bytes + found->activation_bytes;
	else if (known(found->allowed_bytes) && known(found->shortfall_bytes))
		needed = found->allowed_bytes + found->shortfall_bytes;
	if (!known(needed))
		return;
	found->least_utilization = (double)needed / (double)total;
	found->cause = found->least_utilization < 1 ? NEAP_TEXT_LIMIT : NEAP_TEXT_CAPACITY;
	if (known(found->allowed_bytes))
		found->shortfall_bytes = needed > found->allowed_bytes ? needed - found->allowed_bytes : 0;
}

void neap_oom_vllm_read(const char *before, size_t length, struct neap_oom_text *found)
{
	read_vllm(before, length, found);
	decide_vllm(found);
}

/* Copies one line's end or beginning, as words of at most room - 1 bytes. */
static void copy_line(const char *text, size_t length, char *ret_line, size_t capacity)
{
	size_t size = 0;
	while (size < length && size < capacity - 1 && text[size] != '\n' && text[size] != '\0') {
		ret_line[size] = text[size];
		size++;
	}
	ret_line[size] = '\0';
}

/* "StepId=7.batch", "step 7.batch", "Job 7" */
static void read_step(const char *line, struct neap_oom_text *found)
{
	static const char *const phrases[] = {"StepId=", "JobId=", "step ", "Step ", "Job "};
	static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyz._+";
	for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
		for (const char *at = line; (at = strstr(at, phrases[i]));) {
			at += strlen(phrases[i]);
			if (!isdigit((unsigned char)*at))
				continue;
			size_t length = strspn(at, allowed);
			while (length > 0 && at[length - 1] == '.')
				length--;
			snprintf(found->step, sizeof found->step, "%.*s", (int)(length < 31 ? length : 31), at);
			return;
		}
}

/* "(734003200 > 52428800)", in bytes where the line speaks of a StepId; older versions may have meant KiB. */
static void read_limit(const char *line, struct neap_oom_text *found)
{
	static const char phrase[] = "exceeded memory limit (";
	const char *at = strstr(line, phrase);
	char *end = NULL;
	if (!at || !strstr(line, "StepId=") || !isdigit((unsigned char)at[sizeof phrase - 1]))
		return;
	unsigned long long used = strtoull(at + sizeof phrase - 1, &end, 10);
	if (strncmp(end, " > ", 3) != 0 || !isdigit((unsigned char)end[3]))
		return;
	unsigned long long limit = strtoull(end + 3, NULL, 10);
	if (used > 1ull << 62 || limit >= used)
		return;
	found->process_bytes = used;
	found->allowed_bytes = limit;
	found->shortfall_bytes = used - limit;
}

void neap_oom_slurm_read(const char *before, size_t before_length, const char *text, size_t length,
			 struct neap_oom_text *found)
{
	char line[512];
	size_t start = before_length, size;
	while (start > 0 && before_length - start < 200 && before[start - 1] != '\n')
		start--;
	copy_line(before + start, before_length - start, line, sizeof line);
	size = strlen(line);
	copy_line(text, length, line + size, sizeof line - size);
	read_step(line, found);
	read_limit(line, found);
	found->cause = NEAP_TEXT_HOST;
}
