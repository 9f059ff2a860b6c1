// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/transfer/transfer_station.hpp"

#include <cstdio>

namespace maestro::bench {

std::ostream& operator<<(std::ostream& out, const Introduction& introduction) {
  for (unsigned char byte : introduction.address) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    out << digits;
  }
  return out << ' ' << introduction.region.key << ' ' << introduction.region.base << ' ' << introduction.region.bytes;
}

std::istream& operator>>(std::istream& in, Introduction& introduction) {
  std::string digits;
  in >> digits >> introduction.region.key >> introduction.region.base >> introduction.region.bytes;
  introduction.address.clear();
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    introduction.address += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
  }
  return in;
}

TransferStation::TransferStation(const std::string& provider, std::size_t bytes)
    : memory_(bytes, std::byte{1}),
      endpoint_(Endpoint::open({provider, "127.0.0.1", 20000, [this](const EndpointEvent& event) { note(event); }})
                    .value_or_throw()),
      region_(std::make_unique<Region>(endpoint_->register_memory(memory_.data(), bytes).value_or_throw())) {}

void TransferStation::meet(const Introduction& peer) {
  peer_ = endpoint_->connect(peer.address, "the other end").value_or_throw();
  target_ = peer.region;
}

void TransferStation::write(std::size_t offset, std::size_t bytes) {
  endpoint_->write({peer_, region_.get(), offset, bytes, target_, offset, 0, written_++});
}

void TransferStation::await_remote(std::uint64_t count) {
  await(remote_, count);
}
void TransferStation::await_done(std::uint64_t count) {
  await(done_, count);
}

void TransferStation::await(const std::uint64_t& counter, std::uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return counter >= count || error_; });
  if (error_) throw JobError(*error_);
}

void TransferStation::note(const EndpointEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    if (std::holds_alternative<RemoteWrite>(event)) ++remote_;
    if (std::holds_alternative<WriteDone>(event)) ++done_;
    if (const auto* failed = std::get_if<WriteFailed>(&event)) error_ = failed->error;
    if (const auto* failed = std::get_if<EndpointFailed>(&event)) error_ = failed->error;
  }
  changed_.notify_all();
}

}  // namespace maestro::bench
