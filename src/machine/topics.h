/* machine/topics.h: this machine's figures on a topic of `neap explain`. */
#ifndef NEAP_MACHINE_TOPICS_H
#define NEAP_MACHINE_TOPICS_H

#include "base/buffer.h"
#include "machine/sample.h"

/* Writes them in lines, indented by four; nothing for a topic that has none. */
void neap_topic_figures(struct neap_buffer *out, const char *topic, const struct neap_sample *sample);

#endif
