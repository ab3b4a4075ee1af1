"""A microscopic traffic simulator that reads CityFlow's files and follows its engine's rules, lane change off."""
