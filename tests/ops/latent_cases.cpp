// SPDX-License-Identifier: Apache-2.0
// The heads of latent attention as test cases (latent_operators.hpp).
#include "tests/ops/operator_case.hpp"

namespace maestro::testing {

namespace {

struct LatentHeadsCase final : OperatorCase {
  explicit LatentHeadsCase(bool pairs) : interleaved(pairs) {}
  bool interleaved;
  LatentShape shape(Size size) const {
    return {.heads = 3,
            .head_size = size.columns + 4,
            .rope_size = 4,
            .value_size = (size.columns + 5) / 2,
            .interleaved = interleaved};
  }
  std::string name() const override { return interleaved ? "latent_heads_interleaved" : "latent_heads"; }
  std::vector<Operand> operands(Size size) const override {
    const LatentShape heads = shape(size);
    return {{"queries", {size.rows, heads.query_columns()}, Storage::act},
            {"keys", {size.rows, heads.key_columns()}, Storage::act},
            {"rope", {size.rows, heads.rope_size}, Storage::act}};
  }
  Operand result(Size size) const override {
    return {"qkv", {size.rows, 3 * shape(size).query_columns()}, Storage::act};
  }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const LatentShape heads = shape(size);
    const auto columns = count(1, heads.head_size), nope = columns - 4, value = count(1, heads.value_size);
    const std::vector<std::size_t> order =
        interleaved ? std::vector<std::size_t>{0, 2, 1, 3} : std::vector<std::size_t>{0, 1, 2, 3};
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      for (std::size_t head = 0; head < 3; ++head) {
        const double* query = &in[0][(3 * row + head) * columns];
        for (const std::size_t at : order) y.push_back(query[nope + at]);
        y.insert(y.end(), query, query + nope);
      }
      for (std::size_t head = 0; head < 3; ++head) {
        const double* key = &in[1][(3 * row + head) * (nope + value)];
        for (const std::size_t at : order) y.push_back(in[2][4 * row + at]);
        y.insert(y.end(), key, key + nope);
      }
      for (std::size_t head = 0; head < 3; ++head) {
        const double* own = &in[1][(3 * row + head) * (nope + value) + nope];
        y.insert(y.end(), own, own + value);
        y.insert(y.end(), columns - value, 0.0);
      }
    }
    return y;
  }
  void forward(Call& c) const override {
    c.ops.run(LatentHeads{.queries = c.operands[0],
                          .keys = c.operands[1],
                          .rope = c.operands[2],
                          .shape = shape(c.size),
                          .qkv = c.result});
  }
  void backward(Call& c) const override {
    c.ops.run(LatentHeadsBackward{.dqkv = c.dresult,
                                  .shape = shape(c.size),
                                  .dqueries = c.gradients[0],
                                  .dkeys = c.gradients[1],
                                  .drope = c.gradients[2]});
  }
};

}  // namespace

std::vector<std::shared_ptr<const OperatorCase>> latent_cases() {
  return {std::make_shared<LatentHeadsCase>(false), std::make_shared<LatentHeadsCase>(true)};
}

}  // namespace maestro::testing
