// SPDX-License-Identifier: Apache-2.0
#include "actors/job/data_source.hpp"

#include <algorithm>

#include "runtime/core/ordered_workers.hpp"
#include "runtime/core/usable_cores.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_threads = 16;

/// Prepares a sample for all models that read it.
Status prepare(const Corpus& corpus, Split split, SampleId sample) {
  Status ready = corpus.prepare(split, sample);
  for (const Corpus* more : {corpus.other(), corpus.sounds()}) {
    if (ready && more != nullptr) ready = more->prepare(split, sample);
  }
  return ready;
}

/// Sets a sample's numbers of rows as another model reads it.
void count(const Corpus& other, Split split, SampleRef& sample) {
  const SamplePictures pictures = other.pictures(split, sample.id);
  sample.other_patches = pictures.patches;
  sample.other_images = pictures.images;
  if (!other.rewrites_tokens()) return;
  sample.other_visual = pictures.visual;
  sample.other_tokens = other.length(split, sample.id);
  sample.answers = other.targets(split, sample.id);
}

}  // namespace

std::uint64_t validation_size(const Corpus& corpus, std::int64_t limit) {
  const std::uint64_t all = corpus.samples(Split::validation);
  return limit == 0 ? all : std::min(all, static_cast<std::uint64_t>(limit));
}

BatchDrawer::BatchDrawer(std::shared_ptr<const Corpus> corpus, Sampler sampler, std::size_t threads)
    : corpus_(std::move(corpus)),
      sampler_(std::move(sampler)),
      most_positions_(corpus_->max_length()),
      most_{.images = 0, .patches = corpus_->max_patches(), .visual = corpus_->max_visual()},
      threads_(threads > 0 ? threads : std::clamp<std::size_t>(usable_cores().size() / 2, 1, most_threads)) {
  if (corpus_->patch_columns() == 0) threads_ = 1;  // only images are prepared
}

void BatchDrawer::add(BatchMetadata& batch, Split split, const std::vector<SampleId>& ids) const {
  if (threads_ == 1) {
    for (const SampleId id : ids) add(batch, split, id, prepare(*corpus_, split, id));
    return;
  }
  std::size_t next = 0;
  OrderedWorkers<SampleId, Status> workers(
      threads_, [&](SampleId id) { return prepare(*corpus_, split, id); },
      [&](const Status& ready) { add(batch, split, ids[next++], ready); });
  for (const SampleId id : ids) workers.add(id);
  workers.finish();
}

void BatchDrawer::add(BatchMetadata& batch, Split split, SampleId id, const Status& ready) const {
  if (!ready) {
    batch.left_out.push_back(ready.error().message);
    return;
  }
  const SamplePictures pictures = corpus_->pictures(split, id);
  const std::int64_t positions = corpus_->length(split, id);
  const std::int64_t most_visual =
      most_.visual > most_.patches ? most_.visual : std::min(most_.visual, pictures.patches);
  if (positions > most_positions_ || pictures.patches > most_.patches || pictures.visual > most_visual) {
    const auto text = [](std::int64_t positions, std::int64_t patches, std::int64_t visual) {
      return std::to_string(positions) + " positions, " + std::to_string(patches) + " patches and " +
             std::to_string(visual) + " visual rows";
    };
    batch.left_out.push_back("sample " + std::to_string(id.value()) + " has " +
                             text(positions, pictures.patches, pictures.visual) + ", but the corpus declares at most " +
                             text(most_positions_, most_.patches, most_visual));
    return;
  }
  SampleRef sample{id, positions, pictures.patches, pictures.visual, pictures.images};
  sample.source = corpus_->source(split, id);
  if (const Corpus* const other = corpus_->other()) count(*other, split, sample);
  if (const Corpus* const sounds = corpus_->sounds()) {
    const SamplePictures heard = sounds->pictures(split, id);
    sample.frames = heard.patches;
    sample.heard = heard.visual;
    sample.clips = heard.images;
  }
  batch.samples.push_back(sample);
  batch.target_tokens += corpus_->targets(split, id);
}

BatchMetadata BatchDrawer::training(StepId step, std::int64_t global_batch, const DataCursor& cursor) const {
  BatchMetadata batch;
  batch.step = step;
  const auto size = static_cast<std::uint64_t>(global_batch);
  const std::uint64_t first = cursor.position(step.value(), size);
  std::vector<SampleId> ids;
  for (std::uint64_t position = first; position < first + size; ++position) ids.push_back(sampler_.at(position));
  add(batch, Split::train, ids);
  return batch;
}

BatchMetadata BatchDrawer::validation(StepId step, std::int64_t limit) const {
  BatchMetadata batch;
  batch.step = step;
  batch.pass = Pass::evaluate;
  const std::uint64_t all = corpus_->samples(Split::validation);
  const std::uint64_t count = validation_size(*corpus_, limit);
  std::vector<SampleId> ids;  // spread over the split, the same samples every time
  for (std::uint64_t at = 0; at < count; ++at) ids.emplace_back(at * all / count);
  add(batch, Split::validation, ids);
  return batch;
}

std::optional<std::string> too_many_left_out(const std::vector<std::string>& reasons, std::int64_t most) {
  if (reasons.empty() || static_cast<std::int64_t>(reasons.size()) <= most) return std::nullopt;
  const std::string more = reasons.size() > 1 ? "; and " + std::to_string(reasons.size() - 1) + " more" : "";
  return std::to_string(reasons.size()) + (reasons.size() > 1 ? " samples" : " sample") +
         " cannot be read and data.max_bad_samples = " + std::to_string(most) + ": " + reasons.front() + more;
}

std::string nothing_to_train_on(StepId step, const std::vector<std::string>& reasons) {
  return "step " + std::to_string(step.value()) +
         ": every training sample so far was left out, so there is nothing to train on; the first: " +
         (reasons.empty() ? "?" : reasons.front());
}

DataSource::DataSource(caf::actor_config& config, caf::actor supervisor, std::shared_ptr<const Corpus> corpus,
                       Sampler sampler, DataSourceOptions options)
    : RunActor(config, std::move(supervisor)), drawer_(std::move(corpus), std::move(sampler)), options_(options) {}

caf::behavior DataSource::make_behavior() {
  return {
      [this](const BatchRequest& request) {
        step_ = request.step;
        return request.pass == Pass::train ? drawer_.training(request.step, options_.global_batch, options_.cursor)
                                           : drawer_.validation(request.step, options_.validation_samples);
      },
  };
}

}  // namespace maestro
