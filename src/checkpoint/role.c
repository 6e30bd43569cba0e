/* checkpoint/role.c: see the header. Cuts a name into words and numbers, takes some of them out by rules, and hashes
 * the rest. */
#include "checkpoint/role.h"

#include "checkpoint/name.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TOKENS_MOST  128
#define COUNT(array) (sizeof array / sizeof(*(array)))

struct token {
	const char *text;
	size_t length;
	bool number, out;
};

struct tokens {
	struct token at[TOKENS_MOST];
	size_t count;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

/* The name's length without its extension, or without two: .pth.tar, .safetensors.index.json. */
static size_t stem_length(const char *name, bool *ret_index)
{
	static const char *const doubles[] = {".index.json", ".tar", ".gz", ".zst"};
	size_t length = strlen(name);

	*ret_index = false;
	for (size_t i = 0; i < COUNT(doubles); i++) {
		size_t end = strlen(doubles[i]);
		if (length > end && !strcasecmp(name + length - end, doubles[i])) {
			*ret_index = i == 0;
			length -= end;
			break;
		}
	}
	for (size_t dot = length; dot > 1; dot--) {
		if (name[dot - 1] != '.')
			continue;
		return is_word_byte(name[dot]) && length - dot <= 12 ? dot - 1 : length;
	}
	return length;
}

static size_t number_length(const char *text, const char *end)
{
	const char *at = text;

	while (at < end && is_digit(*at))
		at++;
	if (at + 1 < end && *at == '.' && is_digit(at[1]) && at > text)
		for (at++; at < end && is_digit(*at);)
			at++;
	return (size_t)(at - text);
}

static void cut(const char *name, size_t length, struct tokens *tokens)
{
	const char *at = name, *end = name + length;

	tokens->count = 0;
	while (at < end && tokens->count < TOKENS_MOST) {
		const char *from = at;
		bool number = is_digit(*at);

		if (number)
			at += number_length(at, end);
		while (!number && at < end && is_word_byte(*at))
			at++;
		if (at == from)
			at++; /* a separator */
		else
			tokens->at[tokens->count++] =
				(struct token){.text = from, .length = (size_t)(at - from), .number = number};
	}
}

static bool is(const struct tokens *tokens, size_t i, const char *word)
{
	return i < tokens->count && !tokens->at[i].number && tokens->at[i].length == strlen(word) &&
	       !strncasecmp(tokens->at[i].text, word, tokens->at[i].length);
}

static bool is_one_of(const struct tokens *tokens, size_t i, const char *const *words, size_t count)
{
	for (size_t w = 0; i < tokens->count && !tokens->at[i].number && w < count; w++)
		if ((tokens->at[i].text[0] | 0x20) == words[w][0] &&
		    is(tokens, i, words[w])) /* most differ at once */
			return true;
	return false;
}

/* --- removing parts of a name --- */

static bool take_roles(struct tokens *tokens, bool *ret_aux)
{
	static const char *const models[] = {"model",  "models", "net",     "network", "netg",      "netd",
					     "gen",    "disc",   "g",       "d",       "generator", "discriminator",
					     "actor",  "critic", "encoder", "decoder", "backbone",  "head",
					     "policy", "value",  "student", "teacher", "unet",      "vae"};
	static const char *const helpers[] = {"optimizer",  "optimizers", "optim",  "opt", "scheduler",
					      "schedulers", "sched",      "scaler", "rng", "ema"};
	static const char *const before[] = {"lr", "grad", "amp", "text", "image"};
	static const char *const states[] = {"random", "trainer", "training", "train"};
	bool model = false, helper = false;

	for (size_t i = 0; i < tokens->count; i++) {
		if (tokens->at[i].out)
			continue; /* belongs to a metric */
		bool is_model = is_one_of(tokens, i, models, COUNT(models));
		bool is_helper = is_one_of(tokens, i, helpers, COUNT(helpers)) ||
				 (is_one_of(tokens, i, states, COUNT(states)) &&
				  (is(tokens, i + 1, "state") || is(tokens, i + 1, "states")));

		model |= is_model;
		helper |= is_helper;
		if (!is_model && !is_helper)
			continue;
		tokens->at[i].out = true;
		if (i > 0 && is_one_of(tokens, i - 1, before, COUNT(before)))
			tokens->at[i - 1].out = true;
		/* its rate: ema_0.9999_010000.pt */
		if (is(tokens, i, "ema") && i + 1 < tokens->count && tokens->at[i + 1].number)
			tokens->at[i + 1].out = memchr(tokens->at[i + 1].text, '.', tokens->at[i + 1].length) != NULL;
	}
	*ret_aux = helper && !model;
	return model || helper;
}

static void take_fillers(struct tokens *tokens)
{
	static const char *const fillers[] = {"state",      "states",      "dict", "weights", "params",
					      "checkpoint", "checkpoints", "ckpt", "pytorch", "zero"};

	for (size_t i = 0; i < tokens->count; i++)
		if (is_one_of(tokens, i, fillers, COUNT(fillers)))
			tokens->at[i].out = true;
}

/* Takes out numbers of parts: "rank 0", "mp rank 00", "shard 3"; "00001 of 00003". */
static bool take_parts(struct tokens *tokens, size_t *ret_of)
{
	static const char *const words[] = {"rank", "shard", "part", "worker", "process", "proc", "consolidated"};
	static const char *const before[] = {"mp", "tp", "pp", "dp", "local", "global"};
	bool found = false;

	*ret_of = 0;
	for (size_t i = 0; i + 1 < tokens->count; i++) {
		struct token *token = &tokens->at[i];
		if (!tokens->at[i + 1].number)
			continue;
		if (is(tokens, i, "of") && i > 0 && tokens->at[i - 1].number) {
			token[-1].out = token[0].out = token[1].out = true;
			*ret_of = i;
			found = true;
		} else if (is_one_of(tokens, i, words, COUNT(words))) {
			token[0].out = token[1].out = true;
			if (i > 0 && is_one_of(tokens, i - 1, before, COUNT(before)))
				token[-1].out = true;
			found = true;
		}
	}
	return found;
}

/* Takes out metrics: the words of a metric's name and the number after them. */
static void take_metrics(struct tokens *tokens)
{
	char word[CHECKPOINT_WORD_CAPACITY], metric[CHECKPOINT_WORD_CAPACITY];

	for (size_t i = 1; i < tokens->count; i++) {
		size_t from = i, parts = 1;

		if (!tokens->at[i].number && !is(tokens, i, "nan") && !is(tokens, i, "inf"))
			continue;
		while (from > 0 && !tokens->at[from - 1].number)
			from--;
		if (from == i)
			continue;
		const char *begin = tokens->at[from].text;
		const char *end = tokens->at[i - 1].text + tokens->at[i - 1].length;
		/* the last words count: a name that is too long is cut at its beginning */
		if (end - begin >= CHECKPOINT_WORD_CAPACITY)
			begin = end - CHECKPOINT_WORD_CAPACITY + 1;
		checkpoint_word_normalize(begin, (size_t)(end - begin), word);
		if (!checkpoint_metric_known(word, metric))
			continue;
		for (const char *c = metric; *c; c++)
			parts += *c == '_';
		for (size_t k = 0; k <= parts && k <= i - from; k++)
			tokens->at[i - k].out = true;
	}
}

/* --- hashes --- */

static uint64_t hash(uint64_t sum, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
		sum = (sum ^ (unsigned char)c) * UINT64_C(0x100000001b3); /* FNV-1a */
	}
	return sum;
}

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

void checkpoint_role_read(const char *name, struct checkpoint_role *ret_role)
{
	struct checkpoint_role role = {.key = HASH_BEGIN, .only = UINT64_MAX};
	struct tokens tokens;
	size_t of;

	cut(name, stem_length(name, &role.index), &tokens);
	take_metrics(&tokens);
	bool has_role = take_roles(&tokens, &role.aux);
	role.part = take_parts(&tokens, &of) || has_role || role.index;
	take_fillers(&tokens);
	for (size_t i = 0; i < tokens.count; i++) {
		const char *text = tokens.at[i].text, *end = text + tokens.at[i].length;

		if (tokens.at[i].out)
			continue;
		if (tokens.at[i].number)
			role.only = role.numbered || end - text > 18 || memchr(text, '.', (size_t)(end - text))
					    ? UINT64_MAX
					    : strtoull(text, NULL, 10);
		while (tokens.at[i].number && *text == '0' && text + 1 < end)
			text++; /* 005 is 5 */
		role.key = hash(hash(role.key, text, (size_t)(end - text)), "_", 1);
		role.numbered |= tokens.at[i].number;
	}
	if (of) {
		const struct token *number = &tokens.at[of - 1];
		role.set = hash(hash(HASH_BEGIN, name, (size_t)(number->text - name)), "/", 1);
		role.set = hash(role.set, number->text + number->length, strlen(number->text + number->length));
		role.of = strtoull(tokens.at[of + 1].text, NULL, 10);
	}
	*ret_role = role;
}
