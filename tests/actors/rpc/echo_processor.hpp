// SPDX-License-Identifier: Apache-2.0
// A Thrift service with a single method, `string echo(1: string text)`, written by hand in the compiler's style.
#pragma once

#include <thrift/TProcessor.h>

#include <memory>
#include <string>

namespace maestro {

class RpcClient;

/// Returns a service handler that answers with `prefix` and the text.
std::shared_ptr<apache::thrift::TProcessor> echo_processor(std::string prefix);

/// Calls the method; throws as RpcClient::invoke() does.
std::string echo(RpcClient& connection, const std::string& text);

}  // namespace maestro
