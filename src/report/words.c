/* report/words.c: the words of README's table, for pages. */
#include "report/words.h"

#include "report/markup.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *word, *means;
} words[] = {
	{"requested", "Bytes that are live, as many as the program asked for."},
	{"allocated",
	 "Bytes of the blocks that the program got for its requests: requested, and what rounding added."},
	{"rounded",
	 "Requested bytes, each request rounded up to 512 bytes as PyTorch does: its allocated bytes, nearly."},
	{"reserved", "Bytes that the allocator took from the driver. No other process can use them."},
	{"cached", "Reserved and not allocated. Emptying the cache returns what no live block pins."},
	{"utilization",
	 "Requested of reserved bytes: what is missing to 100 % was lost to rounding and to cached blocks."},
	{"headroom", "What was, or would be, left of the device at the peak. Below 0: so much is missing."},
	{"fits",
	 "yes: even if everything takes the most that it may. probably: unless what the report names takes more. no: "
	 "not even if everything takes the least. In a series: the largest micro-batch that is predicted to fit."},
	{"nvidia-smi",
	 "What nvidia-smi shows for the process: reserved, the driver's context, and what libraries take "
	 "beside PyTorch's allocator."},
	{"context", "What the driver takes for a process before its first allocation."},
	{"out of memory", "A request that the device, or a limit, could not serve."},
	{"drain", "The time until the driver had the memory of the ended process back."},
	{"retries", "Times that the run was started again, with less."},
	{"rung", "A step of the ladder that a run takes when memory is short: a smaller micro-batch first."},
	{"leak", "What memory grows by with each step."},
	{"peak", "The most that was taken at one instant."},
	/* What memory is for: analyze/categories.h. */
	{"parameters", "The weights of the model, and its buffers."},
	{"gradients", "What backward made and the optimizer has not used yet."},
	{"optimizer state", "What the optimizer keeps for each parameter: Adam's two moments, SGD's momentum."},
	{"activations", "What forward keeps until backward needs it. It grows with the micro-batch."},
	{"temporaries", "Results that live for a part of one step."},
	{"workspaces", "What cuBLAS and cuDNN asked for, to compute in."},
	{"inputs", "Batches, as the program named them."},
	{"kept over steps",
	 "Made in a step and kept after it, and neither parameters, gradients nor optimizer state: a history, a "
	 "leak."},
	{"unknown", "Nothing shows what these bytes are for."},
};
#define WORDS (sizeof words / sizeof *words)

/* The number of the word that `text` ends with; WORDS: none. */
static size_t find(const char *text)
{
	size_t length = strlen(text);
	for (size_t i = 0; i < WORDS; i++) {
		size_t part = strlen(words[i].word);
		if (part <= length && !strcmp(text + length - part, words[i].word) &&
		    (part == length || text[length - part - 1] == ' '))
			return i;
	}
	return WORDS;
}

/* "word-out-of-memory" */
static void put_id(struct neap_buffer *out, size_t word)
{
	neap_buffer_text(out, "word-");
	for (const char *at = words[word].word; *at; at++)
		neap_buffer_append(out, *at == ' ' ? "-" : at, 1);
}

void neap_words_put(struct neap_buffer *out, const char *text)
{
	size_t word = find(text);

	if (word == WORDS) {
		neap_markup_text(out, text);
		return;
	}
	neap_buffer_text(out, "<button type=\"button\" class=\"word\" popovertarget=\"");
	put_id(out, word);
	neap_buffer_text(out, "\">");
	neap_markup_text(out, text);
	neap_buffer_text(out, "</button>");
}

void neap_words_explain(struct neap_buffer *out)
{
	for (size_t i = 0; i < WORDS; i++) {
		neap_buffer_text(out, "<div popover id=\"");
		put_id(out, i);
		neap_buffer_format(out, "\"><b>%s</b> ", words[i].word);
		neap_markup_text(out, words[i].means);
		neap_buffer_text(out, "</div>\n");
	}
}
