/* estimate/trackers.h: sets experiment trackers offline, by the trackers' own variables.
 *
 *   W&B       WANDB_MODE=offline          docs.wandb.ai, "Can I run wandb offline?"
 *   MLflow    MLFLOW_TRACKING_URI=file:.. mlflow.org, "Backend Stores", where it names a server
 *   Comet     COMET_START_ONLINE=0        huggingface.co/docs/transformers, CometCallback; for comet_ml.start()
 *   Neptune   NEPTUNE_MODE=offline        docs.neptune.ai, "Environment variables"
 *   ClearML   CLEARML_OFFLINE_MODE=1      clear.ml/docs, "Offline mode"
 *
 * A script's own arguments override these variables. TensorBoard only writes files. The Hugging Face Hub has no
 * variable that stops uploads alone: HF_HUB_OFFLINE=1 stops downloads too, so neap leaves it as the user has set
 * it. */
#ifndef NEAP_ESTIMATE_TRACKERS_H
#define NEAP_ESTIMATE_TRACKERS_H

/* Changes the environment; call it before the program starts. `folder`: the run's. */
void neap_trackers_set_offline(const char *folder);

#endif
