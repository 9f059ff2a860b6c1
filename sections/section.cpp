#include "sections/section.hpp"

#include <algorithm>
#include <stdexcept>

namespace maestro {

namespace {

template <class Values>
auto find_port(const Values& values, std::string_view port) {
  return std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == port; });
}

}  // namespace

const Var& Inputs::operator[](std::string_view port) const {
  const auto found = find_port(values_, port);
  if (found == values_.end()) throw std::out_of_range("input port '" + std::string(port) + "' is not connected");
  return found->second;
}

bool Inputs::has(std::string_view port) const {
  return find_port(values_, port) != values_.end();
}

const Var* Outputs::find(std::string_view port) const {
  const auto found = find_port(values_, port);
  return found == values_.end() ? nullptr : &found->second;
}

void Outputs::losses(const LossSums& sums, bool with_teacher) {
  const auto tokens = static_cast<double>(sums.tokens);
  metric("loss", sums.total, tokens);
  metric("ce", sums.ce, tokens);
  if (!with_teacher) return;
  metric("kl", sums.kl, tokens);
  metric("teacher_ce", sums.teacher_ce, tokens);
}

}  // namespace maestro
