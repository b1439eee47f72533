-- The answers. Each is computed again from silver and replaces its table in one step.

CREATE MATERIALIZED VIEW per_minute
COMMENT 'When do people come, and what do they do?'
AS SELECT date_trunc('MINUTE', time) AS minute,
          behavior,
          count(*) AS events,
          count(DISTINCT user_id) AS users
   FROM silver
   GROUP BY date_trunc('MINUTE', time), behavior
   ORDER BY minute, behavior;

CREATE MATERIALIZED VIEW funnel
COMMENT 'How many people take each step after all the steps before it?'
AS WITH people AS (
     SELECT user_id,
            max(behavior = 'browse') AS browsed,
            max(behavior IN ('like', 'favourite', 'comment')) AS interested,
            max(behavior = 'cart') AS carted,
            max(behavior = 'buy') AS bought
     FROM silver
     GROUP BY user_id
   ),
   steps AS (
     SELECT stack(4,
                  1, 'browsed', count_if(browsed),
                  2, 'showed interest', count_if(browsed AND interested),
                  3, 'filled a cart', count_if(browsed AND interested AND carted),
                  4, 'bought', count_if(browsed AND interested AND carted AND bought)) AS (step, stage, users)
     FROM people
   )
   SELECT step,
          stage,
          users,
          round(users / first_value(users) OVER (ORDER BY step), 4) AS of_first,
          round(users / lag(users) OVER (ORDER BY step), 4) AS of_previous
   FROM steps
   ORDER BY step;

CREATE MATERIALIZED VIEW top_items
COMMENT 'Which items earn the most?'
AS SELECT item_id,
          first(category) AS category,
          count_if(behavior = 'browse') AS browsed,
          count_if(behavior = 'cart') AS carted,
          count_if(behavior = 'buy') AS bought,
          round(sum(CASE WHEN behavior = 'buy' THEN price ELSE 0 END), 2) AS revenue
   FROM silver
   GROUP BY item_id
   ORDER BY revenue DESC, item_id
   LIMIT 100;

CREATE MATERIALIZED VIEW sessions
COMMENT 'Visits: a pause of half an hour ends one.'
AS SELECT user_id,
          session_window.start AS started,
          round((unix_micros(max(time)) - unix_micros(min(time))) / 60e6, 2) AS minutes,
          count(*) AS events,
          count(DISTINCT item_id) AS items,
          count_if(behavior = 'buy') AS bought
   FROM silver
   GROUP BY user_id, session_window(time, '30 minutes');

CREATE MATERIALIZED VIEW by_level
COMMENT 'What does a member spend? Purchases joined to the profiles.'
AS SELECT coalesce(profiles.level, 'no profile') AS level,
          count(DISTINCT silver.user_id) AS users,
          round(sum(CASE WHEN behavior = 'buy' THEN price ELSE 0 END), 2) AS revenue,
          round(sum(CASE WHEN behavior = 'buy' THEN price ELSE 0 END)
                / count(DISTINCT silver.user_id), 2) AS revenue_per_user
   FROM silver LEFT JOIN profiles ON silver.user_id = profiles.user_id
   GROUP BY coalesce(profiles.level, 'no profile')
   ORDER BY revenue DESC;
