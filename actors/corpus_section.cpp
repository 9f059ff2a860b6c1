#include "actors/corpus_section.hpp"

namespace maestro {

void CorpusSection::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Split split = inputs.pass() == Pass::train ? Split::train : Split::validation;
  const Shape shape{inputs.layout().rows(), 1};
  Var tokens = tape.output(shape, DType::i32, false);
  Var targets = tape.output(shape, DType::i32, false);
  for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
    const auto first = static_cast<std::size_t>(inputs.layout().offsets[at]);
    const auto count = static_cast<std::size_t>(inputs.layout().offsets[at + 1]) - first;
    corpus_->read(split, inputs.samples()[at], tokens.value().span<std::int32_t>().subspan(first, count),
                  targets.value().span<std::int32_t>().subspan(first, count));
  }
  outputs.set("tokens", std::move(tokens));
  outputs.set("targets", std::move(targets));
}

}  // namespace maestro
