// The window's picture: session + state -> scene. Pure; a back end only draws it.
#pragma once

#include "viz/scene.h"
#include "viz/session.h"

namespace rehearse::viz {

Scene view_scene(const Session& session, const ViewState& state);

}  // namespace rehearse::viz
