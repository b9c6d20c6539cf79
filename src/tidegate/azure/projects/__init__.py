"""Stream Analytics projects, as Visual Studio Code, Visual Studio and the portal write them, read unchanged."""
