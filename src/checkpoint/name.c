/* checkpoint/name.c: see the header.
 *
 * A number begins at a digit. Its word is the text between the previous number and this one, back to the last
 * character that no word has. One of "=:_-" between word and number belongs to neither. A number may have a sign only
 * after '=' or ':': in "loss-0.5" the dash is a separator.
 */
#include "checkpoint/name.h"

#include "checkpoint/writer.h"

#include "base/units.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NUMBER_CAPACITY 48
#define COUNT(array)    (sizeof array / sizeof(*(array)))

/* --- words --- */

/* Names are bytes, and only ASCII matters in them, whatever the locale. Must be fast: a folder may have 10^5 names.
 */
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
static bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
static bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }
static bool is_joint(char c) { return c == '_' || c == '-' || c == '/' || c == ' ' || c == '.' || c == '+'; }

void checkpoint_word_normalize(const char *text, size_t length, char ret_word[CHECKPOINT_WORD_CAPACITY])
{
	size_t used = 0;

	while (length > 0 && is_joint(*text))
		text++, length--;
	while (length > 0 && is_joint(text[length - 1]))
		length--;
	for (size_t i = 0; i < length && used < CHECKPOINT_WORD_CAPACITY - 1; i++)
		ret_word[used++] = is_joint(text[i]) ? '_' : lower(text[i]);
	ret_word[used] = '\0';
}

/* Words that make another metric of the one they precede. */
static const char *const qualifiers[] = {
	"val", "valid", "validation", "eval",    "evaluation", "test",     "train", "training", "dev",   "best",
	"ema", "avg",   "mean",       "running", "neg",        "negative", "minus", "micro",    "macro", "weighted"};

static bool is_word(const char *text, size_t length, const char *word)
{
	return strlen(word) == length && !memcmp(text, word, length);
}

static bool is_qualifier(const char *text, size_t length)
{
	for (size_t i = 0; i < COUNT(qualifiers); i++)
		if (length > 0 && text[0] == qualifiers[i][0] && is_word(text, length, qualifiers[i]))
			return true;
	return false;
}

/* Where the last part of word[0..length) begins; parts are joined by '_'. */
static size_t last_part(const char *word, size_t length)
{
	while (length > 0 && word[length - 1] != '_')
		length--;
	return length;
}

/* Whether a number after this word is the metric; both are normalized. The word must equal the metric or end with it:
 * "mymodel_val_loss" is val_loss, but "val_loss" is not loss. */
static bool is_metric(const char *word, const char *metric)
{
	size_t length = strlen(word), wanted = strlen(metric);

	if (wanted == 0 || length < wanted || memcmp(word + length - wanted, metric, wanted) != 0)
		return false;
	if (length == wanted)
		return true;
	if (word[length - wanted - 1] != '_')
		return false;
	size_t end = length - wanted - 1, begin = last_part(word, end);
	return !is_qualifier(word + begin, end - begin);
}

static const struct {
	const char *name;
	enum neap_metric_mode mode;
} known_metrics[] = {
	{"loss", NEAP_METRIC_MIN},      {"valloss", NEAP_METRIC_MIN}, {"vloss", NEAP_METRIC_MIN},
	{"error", NEAP_METRIC_MIN},     {"err", NEAP_METRIC_MIN},     {"perplexity", NEAP_METRIC_MIN},
	{"ppl", NEAP_METRIC_MIN},       {"mae", NEAP_METRIC_MIN},     {"mse", NEAP_METRIC_MIN},
	{"rmse", NEAP_METRIC_MIN},      {"mape", NEAP_METRIC_MIN},    {"nll", NEAP_METRIC_MIN},
	{"bpb", NEAP_METRIC_MIN},       {"bpc", NEAP_METRIC_MIN},     {"wer", NEAP_METRIC_MIN},
	{"cer", NEAP_METRIC_MIN},       {"ter", NEAP_METRIC_MIN},     {"eer", NEAP_METRIC_MIN},
	{"fid", NEAP_METRIC_MIN},       {"lpips", NEAP_METRIC_MIN},   {"accuracy", NEAP_METRIC_MAX},
	{"acc", NEAP_METRIC_MAX},       {"valacc", NEAP_METRIC_MAX},  {"f1", NEAP_METRIC_MAX},
	{"precision", NEAP_METRIC_MAX}, {"recall", NEAP_METRIC_MAX},  {"auc", NEAP_METRIC_MAX},
	{"auroc", NEAP_METRIC_MAX},     {"auprc", NEAP_METRIC_MAX},   {"map", NEAP_METRIC_MAX},
	{"iou", NEAP_METRIC_MAX},       {"miou", NEAP_METRIC_MAX},    {"dice", NEAP_METRIC_MAX},
	{"bleu", NEAP_METRIC_MAX},      {"rouge", NEAP_METRIC_MAX},   {"chrf", NEAP_METRIC_MAX},
	{"psnr", NEAP_METRIC_MAX},      {"ssim", NEAP_METRIC_MAX},    {"r2", NEAP_METRIC_MAX},
	{"reward", NEAP_METRIC_MAX},
};

enum neap_metric_mode checkpoint_metric_known(const char *word, char ret_metric[CHECKPOINT_WORD_CAPACITY])
{
	size_t length = strlen(word), begin = last_part(word, length);
	enum neap_metric_mode mode = NEAP_METRIC_MODE_UNKNOWN;

	for (size_t i = 0; i < COUNT(known_metrics) && !mode; i++)
		if (word[begin] == known_metrics[i].name[0] && !strcmp(word + begin, known_metrics[i].name))
			mode = known_metrics[i].mode;
	while (mode && begin > 0) {
		size_t before = last_part(word, begin - 1), part = begin - 1 - before;

		if (!is_qualifier(word + before, part))
			break;
		if (is_word(word + before, part, "neg") || is_word(word + before, part, "negative") ||
		    is_word(word + before, part, "minus"))
			return NEAP_METRIC_MODE_UNKNOWN; /* its sign was reversed: only the user knows the mode */
		begin = before;
	}
	if (mode && ret_metric)
		strcpy(ret_metric, word + begin);
	return mode;
}

/* --- numbers --- */

static size_t digits_length(const char *text)
{
	size_t length = 0;

	while (is_digit(text[length]))
		length++;
	return length;
}

/* The length of the number at `text`: digits, a fraction, an exponent. 0: there is none. */
static size_t number_length(const char *text, bool *ret_whole)
{
	*ret_whole = true;
	if (!is_digit(*text))
		return 0;
	size_t length = digits_length(text);
	if (text[length] == '.' && is_digit(text[length + 1])) {
		length += 1 + digits_length(text + length + 1);
		*ret_whole = false;
	}
	if (text[length] == 'e' || text[length] == 'E') {
		size_t sign = text[length + 1] == '+' || text[length + 1] == '-';
		size_t digits = digits_length(text + length + 1 + sign);

		if (digits > 0 && digits <= 3) {
			length += 1 + sign + digits;
			*ret_whole = false;
		}
	}
	return length;
}

/* The length of "nan", "inf" or "infinity" at `text`; 0: none is there, or it is part of a word. */
static size_t special_length(const char *text)
{
	static const char *const words[] = {"infinity", "nan", "inf"};

	if (lower(*text) != 'i' && lower(*text) != 'n')
		return 0;
	for (size_t i = 0; i < COUNT(words); i++) {
		size_t length = strlen(words[i]);

		if (!strncasecmp(text, words[i], length) && !is_letter_or_digit(text[length]))
			return length;
	}
	return 0;
}

/* The number's value. Infinite if the name says so or the number is too large; NaN if the name says so. */
static double value_of(const struct checkpoint_number *number)
{
	double value = (double)INFINITY; /* if the number is too large for a double */
	char digits[NUMBER_CAPACITY];

	if (lower(number->text[0]) == 'n') {
		value = (double)NAN;
	} else if (is_digit(number->text[0])) {
		memcpy(digits, number->text, number->length);
		digits[number->length] = '\0';
		neap_double_parse(digits, &value, NULL);
	}
	return number->negative ? -value : value;
}

/* Reads the word that ends at `end`, without the separator. It may begin at `from`, not before. */
static void read_word(const char *from, const char *end, char ret_word[CHECKPOINT_WORD_CAPACITY])
{
	if (end > from && (end[-1] == '=' || end[-1] == ':'))
		end--;
	const char *begin = end;
	while (begin > from && (is_letter_or_digit(begin[-1]) || (is_joint(begin[-1]) && begin[-1] != '.')))
		begin--;
	checkpoint_word_normalize(begin, (size_t)(end - begin), ret_word);
}

/* Fills `number` with the number at `p`. Its word may begin at `from`. */
static void take_number(const char *from, const char *p, size_t length, bool whole, struct checkpoint_number *number)
{
	bool sign = p - from >= 2 && (p[-1] == '-' || p[-1] == '+') && (p[-2] == '=' || p[-2] == ':');
	char digits[NUMBER_CAPACITY];

	number->text = p;
	number->length = length;
	number->negative = sign && p[-1] == '-';
	number->whole = whole && !number->negative;
	number->apart = (p == from || !is_letter(p[-1])) && !is_letter_or_digit(p[length]);
	number->count = 0;
	memcpy(digits, p, length);
	digits[length] = '\0';
	if (number->whole && neap_u64_parse(digits, &number->count, NULL) != NEAP_OK)
		number->whole = false;
	read_word(from, sign ? p - 1 : p, number->word);
}

bool checkpoint_number_next(const char **at, struct checkpoint_number *ret_number)
{
	const char *from = *at;

	for (const char *p = from; *p; p++) {
		bool whole, separated = p > from && (p[-1] == '=' || p[-1] == ':' || p[-1] == '_' || p[-1] == '-');
		size_t length = number_length(p, &whole);

		if (length == 0 && separated) {
			length = special_length(p);
			whole = false;
		}
		if (length == 0)
			continue;
		/* The digit of "f1=0.9" belongs to the word. */
		if (whole && (p[length] == '=' || p[length] == ':') && p > from && is_letter(p[-1])) {
			p += length - 1;
			continue;
		}
		*at = p + length;
		if (length >= NUMBER_CAPACITY) { /* too long to be meant as a number */
			from = p + length;
			p = from - 1;
			continue;
		}
		take_number(from, p, length, whole, ret_number);
		return true;
	}
	return false;
}

static enum checkpoint_count count_kind(const char *word)
{
	static const char *const steps[] = {"step",       "steps", "globalstep", "iter",   "iters",  "iteration",
					    "iterations", "it",    "ba",         "update", "updates"};
	static const char *const epochs[] = {"epoch", "epochs", "ep"};
	static const char *const ordinals[] = {"checkpoint", "ckpt", "chkpt", "cp"};
	const char *part = word + last_part(word, strlen(word));

	for (size_t i = 0; i < COUNT(steps); i++)
		if (!strcmp(part, steps[i]))
			return CHECKPOINT_STEP;
	for (size_t i = 0; i < COUNT(epochs); i++)
		if (!strcmp(part, epochs[i]))
			return CHECKPOINT_EPOCH;
	for (size_t i = 0; i < COUNT(ordinals); i++)
		if (!strcmp(part, ordinals[i]))
			return CHECKPOINT_ORDINAL;
	return CHECKPOINT_BARE;
}

/* Whether a number after this word may count checkpoints: it is not a metric, a version ("-v1") or a part's number.
 */
static bool is_plain_count(const char *word)
{
	static const char *const others[] = {"v",     "version", "of",   "rank", "part",
					     "shard", "fold",    "seed", "lr",   "bs"};
	const char *part = word + last_part(word, strlen(word));

	for (size_t i = 0; i < COUNT(others); i++)
		if (!strcmp(part, others[i]))
			return false;
	return !checkpoint_metric_known(word, NULL);
}

bool checkpoint_count_read(const char *name, enum checkpoint_count *ret_kind, uint64_t *ret_count)
{
	enum checkpoint_count best = CHECKPOINT_COUNTS;
	const char *extension = strrchr(name, '.');
	struct checkpoint_number number;
	uint64_t count = 0;

	if (!extension || !is_letter(extension[1]))
		extension = name + strlen(name);
	/* The 5 of ".h5" counts nothing. */
	while (checkpoint_number_next(&name, &number) && name <= extension) {
		enum checkpoint_count kind = count_kind(number.word);

		if (!number.whole || kind > best || (kind == best && kind != CHECKPOINT_BARE))
			continue;
		if (kind == CHECKPOINT_BARE && (!number.apart || !is_plain_count(number.word)))
			continue;
		best = kind;
		count = number.count;
	}
	if (best == CHECKPOINT_COUNTS || count == NEAP_STEP_UNKNOWN)
		return false;
	*ret_kind = best;
	*ret_count = count;
	return true;
}

int checkpoint_metric_read(const char *name, const char *metric, double *ret_value)
{
	struct checkpoint_number number;
	double value = 0, exact_value = 0;
	int found = 0, exact = 0;

	while (checkpoint_number_next(&name, &number)) {
		if (!strcmp(number.word, metric)) {
			exact++;
			exact_value = value_of(&number);
		} else if (is_metric(number.word, metric)) {
			found++;
			value = value_of(&number);
		}
	}
	if (exact + found == 0)
		return 0;
	*ret_value = exact ? exact_value : value;
	return (exact ? exact : found) > 1 ? 2 : 1;
}

/* --- names --- */

/* NAME.tmp-PID-N, see base/file.h. */
static bool is_temporary(const char *name)
{
	const char *at = NULL;

	for (const char *next = name; (next = strstr(next, ".tmp-")); next++)
		at = next + 5;
	if (!at)
		return false;
	size_t pid = strspn(at, "0123456789");
	if (pid == 0 || at[pid] != '-')
		return false;
	at += pid + 1;
	return is_digit(*at) && at[strspn(at, "0123456789")] == '\0';
}

static bool has_extension(const char *name, const char *const *extensions, size_t count)
{
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && dot > name && i < count; i++)
		if (lower(dot[1]) == extensions[i][0] && !strcasecmp(dot + 1, extensions[i]))
			return true;
	return false;
}

bool checkpoint_is_beside(const char *name)
{
	static const char *const beside[] = {"json", "yaml", "yml", "pin"};

	return name[0] == '.' || has_extension(name, beside, COUNT(beside));
}

bool checkpoint_is_index(const char *name)
{
	size_t length = strlen(name);

	return length > 11 && !strcasecmp(name + length - 11, ".index.json");
}

bool checkpoint_has_metric(const char *name)
{
	struct checkpoint_number number;

	while (checkpoint_number_next(&name, &number))
		if (checkpoint_metric_known(number.word, NULL))
			return true;
	return false;
}

/* Whether the name has a number of parts: "model-00001-of-00002". */
static bool is_part(const char *name)
{
	struct checkpoint_number number;

	while (checkpoint_number_next(&name, &number))
		if (number.whole && !strcmp(number.word, "of"))
			return true;
	return false;
}

static const char *const own_extensions[] = {"ckpt",  "pt",  "pth",        "safetensors",
					     "keras", "chk", "checkpoint", "pdparams"};
static const char *const shared_extensions[] = {"bin", "h5", "hdf5", "npz", "msgpack", "pkl", "tar"};

bool checkpoint_is_helper(const char *name)
{
	static const char *const others[] = {"npy", "pickle", "dat", "rng", "state"};

	return checkpoint_is_content(name) || has_extension(name, others, COUNT(others));
}

bool checkpoint_is_content(const char *name)
{
	return has_extension(name, own_extensions, COUNT(own_extensions)) ||
	       has_extension(name, shared_extensions, COUNT(shared_extensions));
}

enum checkpoint_class checkpoint_classify(const char *name, bool folder, const char *pattern)
{
	enum checkpoint_count kind = CHECKPOINT_BARE;
	uint64_t count;

	if (name[0] == '.')
		return CHECKPOINT_OTHER;
	if ((is_temporary(name) && !folder) || checkpoint_is_unfinished(name, folder))
		return CHECKPOINT_TEMPORARY;
	if (!folder && checkpoint_is_beside(name))
		return CHECKPOINT_OTHER;
	if (pattern)
		return fnmatch(pattern, name, 0) == 0 ? CHECKPOINT_ONE : CHECKPOINT_OTHER;
	enum checkpoint_class fitting = is_part(name) ? CHECKPOINT_PART : CHECKPOINT_ONE;
	if (has_extension(name, own_extensions, COUNT(own_extensions)))
		return fitting;
	if (!folder && strchr(name, '.') && !checkpoint_is_content(name))
		return CHECKPOINT_OTHER;
	bool counted = checkpoint_count_read(name, &kind, &count) && kind != CHECKPOINT_BARE;
	return counted || (!folder && checkpoint_has_metric(name)) ? fitting : CHECKPOINT_OTHER;
}

/* Whether one of the words is a word of the name. */
static bool has_word(const char *name, const char *const *words, size_t count)
{
	char all[CHECKPOINT_WORD_CAPACITY];

	checkpoint_word_normalize(name, strlen(name), all);
	for (char *part = all; *part;) {
		size_t length = strcspn(part, "_");

		for (size_t i = 0; i < count; i++)
			if (is_word(part, length, words[i]))
				return true;
		part += length + (part[length] == '_');
	}
	return false;
}

bool checkpoint_says_best(const char *name) { return has_word(name, (const char *const[]){"best"}, 1); }

bool checkpoint_is_named(const char *name)
{
	static const char *const own[] = {"last", "latest", "best", "final"};
	struct checkpoint_number number;
	const char *rest = name;
	bool named = has_word(name, own, COUNT(own));

	while (named && checkpoint_number_next(&rest, &number))
		if (count_kind(number.word) != CHECKPOINT_BARE || checkpoint_metric_known(number.word, NULL))
			return false;
	return named;
}

bool checkpoint_sidecar_name(const char *main, size_t n, char *text, size_t capacity)
{
	static const char *const extensions[] = {".json", ".yaml", ".yml"};
	const char *dot = strrchr(main, '.');
	size_t length = strlen(main);

	if (n >= 2 * COUNT(extensions) || checkpoint_is_beside(main))
		return false;
	if (n >= COUNT(extensions)) {
		if (!dot || dot == main)
			return false;
		length = (size_t)(dot - main);
	}
	int needed = snprintf(text, capacity, "%.*s%s", (int)length, main, extensions[n % COUNT(extensions)]);
	return needed > 0 && (size_t)needed < capacity;
}
